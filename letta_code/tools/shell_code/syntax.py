"""What a shell command would run, found with a real parser and without running anything.

A command becomes the simple commands in it (through pipelines, lists, substitutions, loops, functions and
wrappers such as `env`, `xargs` and `sh -c`) and its redirections. What cannot be known is `unknown`, with
the reason: whoever judges must ask then. No judgement is made here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from letta_code.tools.shell_code.shapes import entered_first, odd_test
from letta_code.tools.shell_code.trust import doubt, odd_characters
from letta_code.tools.shell_code.words import Variables, Word, expanded, parser, text_of, used_variables, word
from letta_code.tools.shell_code.wrappers import HARMLESS_FOR_A_COMMAND, WRAPPERS, base_name, set_by_env

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command: its name is `argv[0]`, always known. `wrapper` is True for `env`, `timeout` and the
    like, which only run what follows in the list; `assigned` are variables set for it alone.

    `choices` lists what its unknown words may be; `unlisted` says that some cannot be listed, because they
    come from variables set outside the command ("inherited") or from what it does ("computed"). `secrets`
    are variables in its words that are secret by their names."""

    argv: tuple[Word, ...]
    wrapper: bool = False
    assigned: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    unlisted: Literal["", "inherited", "computed"] = ""
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirect:
    """A file that the shell itself opens, or (`looks`) only looks at."""

    target: Word
    write: bool
    looks: bool = False


@dataclass(slots=True)
class ShellCode:
    """All that is in a command. `recursive` names functions that call themselves; `variables` are those
    that it sets; `secrets` are variables, secret by their names, that it uses outside of simple commands;
    `perhaps` are commands whose name is one of several. `enters` is the folder in which all but the first
    command run, when that is certain: `cd folder && …`."""

    commands: list[SimpleCommand] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    recursive: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    perhaps: list[SimpleCommand] = field(default_factory=list)
    enters: str | None = None
    variables: Variables = field(default_factory=Variables)


_DEPTH = 8  # nested `sh -c`, and wrappers in wrappers
_LONGEST = 50_000  # characters; what is longer is asked about
_MOST_MARKS = 3_000  # the parser's time can grow with their square
_MARKS = re.compile(r"[|&;(){}<>$`\"']")

_PASSED_THROUGH = frozenset(
    {
        *("program", "list", "pipeline", "redirected_statement", "negated_command", "subshell"),
        *("compound_statement", "if_statement", "elif_clause", "else_clause", "while_statement"),
        *("do_group", "case_statement", "case_item", "command_substitution", "process_substitution"),
        *("string", "string_content", "concatenation", "word", "raw_string", "ansi_c_string", "number"),
        *("command_name", "simple_expansion", "variable_name", "special_variable_name", "heredoc_start"),
        *("heredoc_body", "heredoc_content", "heredoc_end", "heredoc_redirect", "herestring_redirect"),
        *("file_descriptor", "comment", "translated_string", "brace_expression", "extglob_pattern"),
        *("regex", "test_operator"),
    }
)
_EXPANSION = re.compile(r"\$\{#?(?:[A-Za-z_0-9]+|[@*?])(?:(?:[-+#%]|:[-+])[^@`$'\"\\{}]*)?\}\Z")
_WORDS = frozenset(
    {
        *("word", "string", "raw_string", "concatenation", "number", "simple_expansion", "expansion"),
        *("command_substitution", "process_substitution", "ansi_c_string", "translated_string"),
        *("brace_expression", "arithmetic_expansion", "extglob_pattern"),
    }
)
_FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprsuwxGLNOS")
_HARMLESS_VARIABLE = re.compile(r"(?!.*proxy|npm_)[a-z_][a-z0-9_]*\Z")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_SECRET = re.compile(
    r"(?!OLDPWD\Z|PWD\Z)(?:.*_)?(?:API_?)?(?:KEY|TOKEN|SECRET|PASS|PASSWD|PASSPHRASE|PASSWORD|PWD|PAT|AUTH"
    r"|CREDENTIAL|COOKIE|DSN)S?(?:_.*)?\Z|.*(?:TOKEN|SECRET|PASSW|APIKEY|DATABASE_URL).*\Z"
)


@lru_cache(maxsize=32)  # a call is judged and looked at several times
def parse(command: str) -> ShellCode:
    """What `command` would run. Never raises: what is not understood is in `unknown`."""
    code = ShellCode()
    _parse_into(code, command, 0)
    return code


def _parse_into(code: ShellCode, command: str, depth: int) -> None:
    if depth > _DEPTH or len(command) > _LONGEST or len(_MARKS.findall(command)) > _MOST_MARKS:
        code.unknown.append("it is too long or too deeply nested to check")
        return
    if odd_characters(command):
        code.unknown.append("it contains characters that cannot be seen or split words")
        return
    source = command.encode("utf-8", "replace")
    tree = parser().parse(source)
    if reason := doubt(tree.root_node, source):
        code.unknown.append(reason)
    code.variables.learn(tree.root_node)
    reader = _Reader(code, depth)
    if depth == 0:
        code.enters = entered_first(tree.root_node)
    reader.visit(tree.root_node)


class _Reader:
    """One walk over a syntax tree, filling `code`."""

    def __init__(self, code: ShellCode, depth: int) -> None:
        self.code = code
        self.depth = depth
        self._choices: tuple[str, ...] = ()
        self._unlisted: Literal["", "inherited", "computed"] = ""
        self._secrets: tuple[str, ...] = ()

    def visit(self, root: Node) -> None:
        pending = [root]  # no recursion: input may be nested deeply
        while pending:
            node = pending.pop()
            handler = getattr(self, f"_visit_{node.type}", None)
            if handler is not None:
                handler(node)
            elif node.is_named and node.type not in _PASSED_THROUGH:
                self._not_known(f"`{text_of(node)[:40]}` ({node.type.replace('_', ' ')}) cannot be checked")
            pending.extend(reversed(node.children))

    def _not_known(self, reason: str) -> None:
        if reason not in self.code.unknown:
            self.code.unknown.append(reason)

    def _visit_command(self, node: Node) -> None:
        assigned = []
        argv: list[Word] = []
        self._choices, self._unlisted, self._secrets = (), "", ()
        for child in (*node.children, *_later_words(node)):
            if child.type == "variable_assignment":
                assigned.append(text_of(child).split("=", 1)[0].rstrip("+"))
            elif child.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                part = child.children[0] if child.type == "command_name" and child.children else child
                argv += expanded(part)
                if argv[-1] is None:
                    self._note_unknown(part)
                self._secrets += self._secret(part)
        if argv[:1] == [None]:
            self._add_possible(argv)
        self._add(argv, tuple(assigned))

    def _add_possible(self, argv: list[Word]) -> None:
        if not self._unlisted:
            self.code.perhaps += [SimpleCommand((choice, *argv[1:])) for choice in self._choices]

    def _note_unknown(self, node: Node) -> None:
        values = self.code.variables.of(node)
        if values is not None:
            self._choices += values
        elif self._unlisted != "computed":
            self._unlisted = "inherited" if self.code.variables.only_inherited(node) else "computed"

    def _visit_declaration_command(self, node: Node) -> None:
        self._choices, self._unlisted = (), "computed"
        self._add([text_of(node.children[0]), *(None for _ in node.children[1:])], ())

    _visit_unset_command = _visit_declaration_command

    def _visit_variable_assignment(self, node: Node) -> None:
        name, _, value = text_of(node).partition("=")
        name = name.rstrip("+")
        harmless = bool(_HARMLESS_VARIABLE.match(name))
        if node.parent is not None and node.parent.type == "command":
            program = node.parent.child_by_field_name("name")
            harmless = name in HARMLESS_FOR_A_COMMAND or (
                name == "IFS" and program is not None and text_of(program) == "read"
            )
        if not harmless:
            self._not_known(f"it sets the variable {name[:40]}")
        if node.parent is not None and "'" in value and ("$(" in value or "`" in value):
            self._not_known("it keeps shell code in a variable")

    def _visit_variable_assignments(self, node: Node) -> None:
        """Several assignments on one line; each is visited by itself."""

    def _visit_for_statement(self, node: Node) -> None:
        name = node.child_by_field_name("variable")
        if name is None or not _HARMLESS_VARIABLE.match(text_of(name)):
            self._not_known("its loop sets a variable that programs use")

    def _visit_function_definition(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if name is None or body is None:
            self._not_known("a function is not understood")
            return
        pending = [body]
        while pending:
            inner = pending.pop()
            if inner.type == "command_name" and text_of(inner) == text_of(name):
                self.code.recursive.append(text_of(name))
                return
            pending.extend(inner.children)

    def _secret(self, node: Node) -> tuple[str, ...]:
        own = {name for name in self.code.variables.values if name.islower()}
        names = (name for name in used_variables(node) if name not in own)
        return tuple(name for name in names if _SECRET.match(name.upper()))

    def _visit_simple_expansion(self, node: Node) -> None:
        """A secret is printed by what uses it, except by a test; simple commands keep their own list."""
        around = node.parent
        while around is not None and around.type not in ("command", "test_command", "command_substitution"):
            if around.type.endswith(("_redirect", "_assignment", "_body")):
                break
            around = around.parent
        if around is None or around.type not in ("command", "test_command"):
            self.code.secrets += self._secret(node)

    def _visit_expansion(self, node: Node) -> None:
        if not _EXPANSION.match(text_of(node)):
            self._not_known(f"`{text_of(node)[:40]}` is only known when it runs")
        self._visit_simple_expansion(node)

    def _visit_file_redirect(self, node: Node) -> None:
        target = node.child_by_field_name("destination")
        if _words_behind(node) and not _belongs_to_command(node):
            self._not_known("words after a redirection are not understood")
        operator = next((child.type for child in node.children if not child.is_named), "")
        if target is None or operator in (">&-", "<&-"):
            return
        value = word(target)
        if operator in (">&", "<&") and value is not None and re.fullmatch(r"\d+-?|-", value):
            return
        self._add_redirect(target, write=operator not in ("<", "<&"))

    def _add_redirect(self, target: Node, *, write: bool, looks: bool = False) -> None:
        values = None if write else self.code.variables.of(target)
        for value in (word(target),) if values is None else values:
            self.code.redirects.append(Redirect(value, write, looks))

    def _visit_heredoc_redirect(self, node: Node) -> None:
        if _words_behind(node) and not _belongs_to_command(node):
            self._not_known("words after a redirection are not understood")

    def _visit_test_command(self, node: Node) -> None:
        if reason := odd_test(node, self.code.variables):
            self._not_known(reason)

    def _visit_binary_expression(self, node: Node) -> None:
        """Part of a test or of arithmetic, judged there."""

    def _visit_unary_expression(self, node: Node) -> None:
        """Looking at a file is reading it."""
        if len(node.children) == 2 and text_of(node.children[0]) in _FILE_TESTS:
            self._add_redirect(node.children[1], write=False, looks=True)

    _visit_parenthesized_expression = _visit_binary_expression

    def _visit_arithmetic_expansion(self, node: Node) -> None:
        if not re.fullmatch(r"\$\(\([\s0-9+*/%()<>=!&|^~-]*\)\)", text_of(node)):
            self._not_known("its arithmetic is only known when it runs")

    # Commands and what they run -------------------------------------------------------------------

    def _add(self, argv: list[Word], assigned: tuple[str, ...], depth: int = 0) -> None:
        if not argv:
            return
        if depth > _DEPTH:
            self._not_known("it runs commands that run commands, too many to check")
            return
        name = argv[0]
        if name is None or not name:
            self._not_known("the name of a command is only known when it runs")
            return
        words = tuple(argv)
        unwrap = WRAPPERS.get(base_name(name))
        inner = None if unwrap is None else unwrap(words)
        if inner is None and unwrap is not None and base_name(name) not in ("find", "env"):
            self._not_known(f"what `{name}` runs here is not understood")
        for variable in set_by_env(words):
            if variable not in HARMLESS_FOR_A_COMMAND:
                self._not_known(f"it sets the variable {variable[:40]}")
        if inner is None and base_name(name) == "env" and len(words) > 1:
            self._not_known("what `env` runs here is not understood")
        wraps = inner is not None and base_name(name) not in ("sudo", "doas", "xargs", "find")
        if base_name(name) in _SHELLS and words[1:2] == ("-c",) and None not in words[:3]:
            wraps = True  # what it runs is judged by itself
        wraps = wraps and re.fullmatch(r"(?:/usr)?/bin/[^/]*|[^/]*", name) is not None
        self.code.commands.append(
            SimpleCommand(words, wraps, assigned, self._choices, self._unlisted, self._secrets)
        )
        for command in inner or ():
            if command:
                self._add(list(command), (), depth + 1)
        self._add_scripts(words)

    def _add_scripts(self, argv: tuple[Word, ...]) -> None:
        name = base_name(argv[0] or "")
        if name == "eval":
            scripts: list[Word] = [None if None in argv[1:] else " ".join(str(part) for part in argv[1:])]
        elif name in _SHELLS:
            flags = [index for index, part in enumerate(argv) if part and re.fullmatch(r"-[a-z]*c", part)]
            scripts = [argv[flags[0] + 1] if flags[0] + 1 < len(argv) else None] if flags else []
            if None in argv[1:] and not flags:
                scripts = [None]
        else:
            return
        for script in scripts:
            if script is None:
                self._not_known(f"the code that `{name}` runs is only known when it runs")
            else:
                _parse_into(self.code, script, self.depth + 1)


def _words_behind(redirect: Node) -> list[Node]:
    """The words that the grammar puts into a redirection although they are arguments of its command:
    `git >/dev/null push`."""
    if redirect.type == "heredoc_redirect":
        return [child for child in redirect.children if child.type in _WORDS]
    return redirect.children_by_field_name("destination")[1:]


def _later_words(command: Node) -> list[Node]:
    """The arguments of `command` that stand behind its redirections."""
    around = command.parent
    if around is None or around.type != "redirected_statement":
        return []
    redirects = [node for node in around.children if node.type in ("file_redirect", "heredoc_redirect")]
    return [found for redirect in redirects for found in _words_behind(redirect)]


def _belongs_to_command(redirect: Node) -> bool:
    around = redirect.parent
    body = None if around is None else around.child_by_field_name("body")
    return body is not None and body.type == "command"
