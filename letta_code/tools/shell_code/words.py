"""The words of a shell command: what they are, or, when variables, globs and braces decide that, what
they may be. Knows syntax nodes; runs and expands nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Word = str | None
"""A word's value; None when it is only known at run time."""

Values = tuple[str, ...] | None
"""What a word may be (globs in it stand for file names), when that can be listed."""

_MOST = 64  # values of one word
_ROUNDS = 4  # of following variables that are set from variables
_PLAIN = re.compile(r"[^\s\\'\"$`()<>|&;]*\Z")
_SET_BY_BASH = re.compile(r"_\Z|BASH|REPLY|OPTARG|MAPFILE|COPROC|FUNCNAME|DIRSTACK|HIST|RANDOM|SRANDOM")
_SETTERS = frozenset({"read", "printf"})
"""Commands whose words may be names of variables that they set."""
_SPLITS = re.compile(r"[^\w./,:@%+=~*?-]")  # what would make other words of an unquoted variable


@cache
def parser() -> Parser:
    """The parser of bash; loaded only when a command is judged."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def text_of(node: Node) -> str:
    """The node's source."""
    return (node.text or b"").decode("utf-8", "replace")


def word(node: Node) -> Word:
    """The value of a word, None when it depends on variables, substitutions, globs or braces."""
    text = text_of(node)
    if node.type in ("word", "number", "extglob_pattern"):
        if text == "{}":
            return text
        if re.search(r"(?<!\\)[*?\[{]", text) or node.children:
            return None
        return re.sub(r"\\(.)", r"\1", text.replace("\\\n", ""))
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        if any(child.is_named and child.type != "string_content" for child in node.children):
            return None
        return re.sub(r'\\([$`"\\])', r"\1", text[1:-1].replace("\\\n", ""))
    if node.type == "concatenation":
        parts = [word(child) for child in node.children]
        if any(part is None for part in parts) or re.search(r"\{[^}]*[,.]", text):
            return None
        return "".join(part or "" for part in parts)
    if node.type == "ansi_c_string":
        return _decoded(text[2:-1])
    return text if not node.is_named and node.type in ("[", "]", "[[", "]]") else None


def _decoded(text: str) -> Word:
    """What stands in `$'…'`; None where its escapes are more than these."""
    if re.search(
        r"\\(?![\\'\"?abefnrtv]|x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8})", text
    ):
        return None
    pieces = re.sub(
        r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|[uU]([0-9A-Fa-f]{1,8})|(.))", _escape, text, flags=re.DOTALL
    )
    return pieces if pieces.isascii() and "\0" not in pieces else None  # beyond: the locale decides


def _escape(match: re.Match[str]) -> str:
    if match[4]:
        return dict(zip("abefnrtv", "\a\b\x1b\f\n\r\t\v", strict=True)).get(match[4], match[4])
    number = int(match[1] or match[3], 16) if match[1] or match[3] else int(match[2], 8)
    return chr(number) if number < 0x110000 else "\0"


def _word_of_child(node: Node) -> Word:
    return word(node.children[0] if node.type == "command_name" and node.children else node)


def expanded(node: Node) -> list[Word]:
    """The words that one word becomes: several, when it has braces."""
    value = word(node)
    if value is None and node.type in ("word", "concatenation") and _PLAIN.match(text_of(node)):
        values = braces(text_of(node))
        if values is not None and len(values) > 1 and not re.search(r"[*?\[]", text_of(node)):
            return list(values)
    return [value]


def used_variables(node: Node) -> list[str]:
    """The names of the variables in a word, but for those in commands inside it."""
    found: list[str] = []
    pending = [node]
    while pending:
        inner = pending.pop()
        if inner.type == "variable_name":
            found.append(text_of(inner))
        if inner.type not in ("command_substitution", "process_substitution"):
            pending += inner.children
    return found


@dataclass(slots=True)
class Variables:
    """The variables that a command sets, wherever in it, and what each may be."""

    values: dict[str, Values] = field(default_factory=dict)

    def learn(self, root: Node) -> None:
        """Take in all assignments and loops below `root`."""
        setters = []
        pending = [root]
        while pending:
            node = pending.pop()
            if node.type in ("variable_assignment", "for_statement"):
                setters.append(node)
            elif node.type == "command" and _SETTERS & set(map(_word_of_child, node.children)):
                self.values |= {text_of(child).removeprefix("-v"): None for child in node.children}
            pending.extend(reversed(node.children))
        for _ in range(_ROUNDS):
            before = dict(self.values)
            for node in setters:
                self._set(node)
            if self.values == before:
                return
        self.values.update(dict.fromkeys(self.values, None))

    def _set(self, node: Node) -> None:
        if node.type == "for_statement":
            variable = node.child_by_field_name("variable")
            name = "" if variable is None else text_of(variable)
            given = [self.of(child) for child in node.children_by_field_name("value")]
            found: Values = (
                None if None in given or not given else tuple(v for each in given for v in each or ())
            )
        else:
            name, operator, _ = text_of(node).partition("=")
            value = node.child_by_field_name("value")
            found = ("",) if value is None else self.of(value)
            if not operator or name.endswith("+") or "[" in name:
                name, found = re.sub(r"[\[+].*", "", name), None
        known = self.values.get(name, ())
        if known is None or found is None or any(map(_SPLITS.search, found)):
            self.values[name] = None
        else:
            merged = tuple(dict.fromkeys((*known, *found)))
            self.values[name] = merged if len(merged) <= _MOST else None

    def of(self, node: Node) -> Values:
        """What this word may be."""
        if (static := word(node)) is not None:
            return (static,)
        text = text_of(node)
        if node.type in ("word", "concatenation") and _PLAIN.match(text):
            return braces(text)
        if node.type == "process_substitution":
            return ()  # its commands are judged by themselves
        if node.type in ("simple_expansion", "expansion"):
            name = re.fullmatch(r"\$\{?([A-Za-z_]\w*)\}?", text)
            if name is None:
                return None
            return ("$MEMORY_DIR",) if name[1] == "MEMORY_DIR" else self.values.get(name[1])
        if node.type in ("string", "concatenation"):
            return self._joined(node)
        return None

    def _joined(self, node: Node) -> Values:
        parts: list[tuple[str, ...]] = []
        end = node.start_byte
        for child in node.children:
            if child.start_byte != end:
                return None  # blanks that the grammar leaves out
            end = child.end_byte
            if child.type == "string_content":
                values: Values = (re.sub(r'\\([$`"\\])', r"\1", text_of(child)),)
            else:
                values = ("",) if child.type == '"' else self.of(child)
            if values is None:
                return None
            parts.append(values)
        size = 1
        for part in parts:
            size *= len(part)
        return tuple(map("".join, product(*parts))) if size <= _MOST else None

    def only_inherited(self, node: Node) -> bool:
        """Whether this is one word, in quotes, that depends on nothing but variables that this command does
        not set. Without quotes it may become none, or many."""
        pending = [node] if node.type == "string" else []
        while pending:
            inner = pending.pop()
            if inner.type in ("simple_expansion", "expansion"):
                name = re.fullmatch(r"\$\{?([A-Za-z_]\w*)\}?", text_of(inner))
                if name is None or name[1] in self.values or _SET_BY_BASH.match(name[1]):
                    return False
            elif inner.type not in ("string", "string_content", '"'):
                return False
            else:
                pending.extend(inner.children)
        return node.type == "string"


def braces(text: str) -> Values:
    """The words that bash makes of `a{b,c}d`, in its order; None for sequences and more than can be
    listed."""
    done = [text]
    while True:
        if len(done) > _MOST:
            return None
        for index, each in enumerate(done):
            inner = next((found for found in re.finditer(r"\{([^{}]*)\}", each) if "," in found[1]), None)
            if inner is not None:
                parts = inner[1].split(",")
                done[index : index + 1] = [
                    each[: inner.start()] + part + each[inner.end() :] for part in parts
                ]
                break
            if ".." in each and "{" in each:
                return None
        else:
            return tuple(done)
