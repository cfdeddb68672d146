"""May this call run? Judged by mode, rules and what the call would touch; nobody is asked here.

Deny beats ask beats allow. Paths are judged where they really lead. A shell command is judged part by
part; what is not understood asks. Destructive commands ask in every mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from letta_code.core.text import one_line
from letta_code.errors import UsageError
from letta_code.paths import Paths
from letta_code.tools.destructive import destruction
from letta_code.tools.rules import Rule, Rules, parse_rules
from letta_code.tools.shell_paths import MOST, Places, candidates, hands_over_names, listed, unknown_names
from letta_code.tools.shell_reading import is_sink, reads
from letta_code.tools.shell_syntax import Redirect, ShellCode, SimpleCommand, base_name, parse

if TYPE_CHECKING:  # the argument classes load pydantic
    from letta_code.tools.base import Access, Arguments, Tool, Workspace

Mode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]

_OWN_TOOLS = frozenset({"TodoWrite", "KillShell", "BashOutput"})
_PERSONAL = (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile", ".zshenv", ".gitconfig", ".ssh")
_FAMILIES = frozenset(
    {"git", "npm", "pnpm", "yarn", "cargo", "docker", "go", "uv", "pip", "kubectl", "gh", "make"}
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, why, and the rule that "always" would grant (empty: not offered)."""

    decision: Literal["allow", "ask", "deny"]
    reason: str = ""
    rule: str = ""


ALLOW = Verdict("allow")


class Policy:
    """The permissions of a session. `mode` may be changed at any time."""

    def __init__(self, mode: Mode, rules: Rules, workspace: Workspace, holds: bool = False) -> None:
        """`holds`: what enters memory unasked waits for the person's review."""
        self.mode: Mode = mode
        self._holds = holds
        self._workspace = workspace
        self._allow = parse_rules(rules.allow)
        self._ask = parse_rules(rules.ask)
        self._deny = parse_rules(rules.deny)
        self._project = workspace.project.resolve()
        self._roots = tuple(root.resolve() for root in workspace.roots)
        self._readable = (*self._roots, workspace.overflow.resolve())
        self._memory = None if workspace.memory is None else workspace.memory.resolve()
        paths = Paths.from_environment()
        self._private = tuple(folder.resolve() for folder in (paths.config, paths.data, paths.memfs))

    def grant(self, rule: str) -> None:
        """Allow what `rule` covers for this session. Raises `UsageError` when it is no rule."""
        self._allow = (*self._allow, Rule.parse(rule))

    def judge(self, tool: Tool[Any], arguments: Arguments, outside: str = "") -> Verdict:
        """May `tool` run with these arguments? `outside` says where text that it would put into memory was
        copied from, when that is neither the person nor memory."""
        accesses = tool.accesses(arguments)
        verdicts = [
            self._judge_tool(tool, bool(accesses), tool.has_effects(arguments)),
            self._judge_outside(tool, outside),
        ]
        if verdicts[0].decision != "deny":
            verdicts += [self._judge_access(tool, access) for access in accesses]
        for decision in ("deny", "ask"):
            for verdict in verdicts:
                if verdict.decision == decision:
                    return verdict
        return ALLOW

    def in_memory(self, accesses: Sequence[Access]) -> bool:
        """Whether a call touches files of the agent's memory and nothing else."""
        return bool(accesses) and all(
            access.kind != "command" and self._workspace.is_memory(access.target) for access in accesses
        )

    def _judge_outside(self, tool: Tool[Any], outside: str) -> Verdict:
        held = self._holds and tool.kind == "memory"
        if not outside or held or self.mode == "bypassPermissions" or _naming(self._allow, "memory"):
            return ALLOW
        return Verdict(
            "ask",
            f"it would put text into memory that comes from {outside} and was not said in this conversation. "
            "Only a rule that allows `memory` lets such text in unasked",
        )

    def _judge_tool(self, tool: Tool[Any], has_accesses: bool, has_effects: bool) -> Verdict:
        if rule := _naming(self._deny, tool.name):
            return Verdict("deny", f"the rule {rule.text} denies it")
        if rule := _naming(self._ask, tool.name):
            return Verdict("ask", f"the rule {rule.text} asks for it")
        if tool.name in _OWN_TOOLS or tool.kind == "read" or (has_accesses and tool.kind != "memory"):
            return ALLOW  # accesses are judged one by one
        if tool.kind == "memory" and not has_effects:
            return ALLOW
        if self.mode == "plan":
            return _planning()
        if tool.kind == "memory" or self.mode == "bypassPermissions" or _naming(self._allow, tool.name):
            return ALLOW
        return Verdict("ask", f"{tool.name} may change something", tool.name)

    def _judge_access(self, tool: Tool[Any], access: Access) -> Verdict:
        if access.kind == "command":
            return self._judge_command(access.target)
        return self._judge_path(tool.name, access.kind, self._workspace.absolute(access.target))

    # Paths ----------------------------------------------------------------------------------------

    def _judge_path(self, tool: str, kind: Literal["read", "write"], given: Path) -> Verdict:
        try:
            path = given.resolve()
        except (OSError, RuntimeError, ValueError):
            return Verdict("ask", f"{one_line(str(given))} cannot be resolved")
        shown = one_line(str(path))
        if denied := self._about_path(self._deny, kind, path, given):
            return Verdict("deny", f"the rule {denied.text} denies it")
        if asked := self._about_path(self._ask, kind, path, given):
            return Verdict("ask", f"the rule {asked.text} asks for it")
        if kind == "write" and self.mode == "plan":
            return _planning()
        if self.mode == "bypassPermissions":
            return ALLOW
        if kind == "write" and (protected := self._protected(path)):
            return Verdict("ask", f"{shown} is {protected}")
        within = kind == "read" or _inside(path, self._roots)  # a relative rule cannot lead out by a link
        allowing = tuple(rule for rule in self._allow if within or rule.pattern.startswith(("//", "~")))
        if self._about_path(allowing, kind, path, path) or (within and _naming(self._allow, tool)):
            return ALLOW
        if kind == "read":
            if _inside(path, self._readable):
                return ALLOW
            return Verdict("ask", f"{shown} is outside the project", f"Read(/{path.parent}/**)")
        if not _inside(path, self._roots):
            return Verdict("ask", f"{shown} is outside the project", f"Edit(/{path.parent}/**)")
        if self.mode == "acceptEdits":
            return ALLOW
        root = next(root for root in self._roots if path.is_relative_to(root))
        return Verdict("ask", f"it changes {shown}", f"Edit(/{root}/**)")

    def _about_path(self, rules: tuple[Rule, ...], kind: str, path: Path, given: Path) -> Rule | None:
        for rule in rules:
            about = rule.reads_or_writes() == kind and rule.pattern
            if about and any(rule.matches_path(each, self._project) for each in {path, given}):
                return rule
        return None

    def _protected(self, path: Path) -> str:
        if ".git" in path.parts:
            return "inside a Git folder"
        if path.name.startswith("settings") and path.parent.name == ".letta":
            return "a settings file of this program"
        mine = self._memory is not None and path.is_relative_to(self._memory)
        if not mine and _inside(path, self._private):
            return "this program's own data"
        home = Path.home().resolve()
        if any(path == home / name or path.is_relative_to(home / name) for name in _PERSONAL):
            return "a personal settings file"
        return ""

    # Commands -------------------------------------------------------------------------------------

    def _judge_command(self, command: str) -> Verdict:
        code = parse(command)
        places = Places(code, self._workspace.project, str(Path.home()))
        verdicts = [self._forbidden(command, code, places), self._destructive(command, code)]
        granted = self.mode == "bypassPermissions" or self._granted_whole(command)
        verdicts += [self._judge_redirect(redirect, places, granted) for redirect in code.redirects]
        if not granted:
            if code.unknown:
                everything = any(rule.tool == "Bash" and not rule.pattern for rule in self._allow)
                if not everything or self.mode == "plan":
                    verdicts.append(self._ask_command(code.unknown[0], command, code))
            verdicts += [self._judge_simple(simple, command, code) for simple in code.commands]
            verdicts += self._judge_reading(command, code, places)
        for decision in ("deny", "ask"):
            found = [verdict for verdict in verdicts if verdict.decision == decision]
            if found:
                return min(found, key=lambda verdict: bool(verdict.rule))  # the strictest first
        return ALLOW

    def _forbidden(self, command: str, code: ShellCode, places: Places) -> Verdict:
        for decision, rules in (("deny", self._deny), ("ask", self._ask)):
            shell_rules = [rule for rule in rules if rule.tool == "Bash" and rule.pattern]
            for rule in shell_rules:
                if rule.pattern == command.strip() or any(map(rule.may_be, code.commands)):
                    return Verdict("deny" if decision == "deny" else "ask", f"the rule {rule.text} covers it")
            if shell_rules and code.unknown:
                return Verdict("ask", f"{code.unknown[0]}, so {decision} rules cannot be checked")
        if any(rule.reads_or_writes() == "read" and rule.pattern for rule in self._deny):
            for path in islice(self._files_of(code.commands, places), MOST):
                if denied := self._about_path(self._deny, "read", _resolved(path), path):
                    return Verdict("deny", f"the rule {denied.text} denies it")
        return ALLOW

    def _files_of(self, commands: Sequence[SimpleCommand], places: Places) -> Iterator[Path]:
        for simple in commands:
            for known in candidates(simple):
                yield from self._meant(known, places, globs=False)
            for choice in listed(simple):
                yield from self._meant(choice, places, globs=True)

    def _meant(self, word: str, places: Places, *, globs: bool) -> Iterator[Path]:
        if word.startswith(("$MEMORY_DIR", "${MEMORY_DIR}")):
            yield self._workspace.absolute(word)
        else:
            yield from places.paths(word, globs=globs)

    def _judge_reading(self, command: str, code: ShellCode, places: Places) -> list[Verdict]:
        """What commands that only read may read without a question."""
        allowed = [rule for rule in self._allow if rule.tool == "Bash"] if self.mode != "plan" else []
        reading = [
            simple
            for simple in code.commands
            if not simple.wrapper and not any(not r.pattern or r.allows_command(simple) for r in allowed)
        ]
        verdicts = []
        if reading and places.unknown:
            verdicts.append(
                self._ask_command("where it changes to is not known", command, code, reading=True)
            )
        for simple in reading:
            if reason := unknown_names(simple):
                verdicts.append(self._ask_command(reason, command, code, reading=True))
        names = [base_name(simple.argv[0] or "") for simple in code.commands]
        if "xargs" in names and any(base_name(simple.argv[0] or "") == "xargs" for simple in reading):
            before = code.commands[: names.index("xargs")]
            fed = "<<" in command or any(not redirect.write for redirect in code.redirects)
            if fed or names.count("xargs") > 1 or not hands_over_names(before):
                reason = "what `xargs` is given is only known when it runs"
                verdicts.append(self._ask_command(reason, command, code, reading=True))
        paths = list(islice(self._files_of(reading, places), MOST + 1))
        if any(simple.argv[0] == "cd" for simple in reading):
            paths += places.folders
        if len(paths) > MOST:
            verdicts.append(self._ask_command("it names too many files", command, code, reading=True))
        judged = (self._judge_path("Read", "read", path) for path in dict.fromkeys(paths[:MOST]))
        verdicts += [verdict for verdict in judged if verdict.decision != "allow"]
        return verdicts

    def _destructive(self, command: str, code: ShellCode) -> Verdict:
        reason = destruction(command, code)
        if not reason:
            return ALLOW
        return _planning() if self.mode == "plan" else Verdict("ask", reason)

    def _judge_redirect(self, redirect: Redirect, places: Places, granted: bool) -> Verdict:
        target = redirect.target
        if is_sink(target):
            return ALLOW
        if target is None or "\0" in target or (places.unknown and not target.startswith(("/", "~"))):
            if granted and (not redirect.write or self.mode == "bypassPermissions"):
                return ALLOW
            if not redirect.write:
                return Verdict("ask", "what it reads is not known")
            return _planning() if self.mode == "plan" else Verdict("ask", "where it writes is not known")
        kind: Literal["read", "write"] = "write" if redirect.write else "read"
        verdicts = [self._judge_path("Bash", kind, path) for path in self._meant(target, places, globs=True)]
        return max(verdicts, key=lambda verdict: ("allow", "ask", "deny").index(verdict.decision))

    def _judge_simple(self, simple: SimpleCommand, command: str, code: ShellCode) -> Verdict:
        if reads(simple):
            return ALLOW
        shell_rules = [rule for rule in self._allow if rule.tool == "Bash"]
        allowed = any(not rule.pattern or rule.allows_command(simple) for rule in shell_rules)
        if allowed and self.mode != "plan":
            return ALLOW
        return self._ask_command(f"it runs `{one_line(simple.argv[0] or '', 40)}`", command, code)

    def _granted_whole(self, command: str) -> bool:
        return self.mode != "plan" and any(
            rule.tool == "Bash" and rule.pattern == command.strip() and "*" not in rule.pattern
            for rule in self._allow
        )

    def _ask_command(self, reason: str, command: str, code: ShellCode, *, reading: bool = False) -> Verdict:
        if self.mode == "plan" and not reading:
            return _planning()
        return Verdict("ask", reason, _offer(command, code))


def _offer(command: str, code: ShellCode) -> str:
    """The rule "always" would add: the subcommand of a well-known family, else exactly this command."""
    asking = [simple for simple in code.commands if not reads(simple)]
    if len(asking) == 1 and not code.unknown:
        argv = asking[0].argv
        if argv[0] in _FAMILIES and len(argv) > 1 and argv[1] and argv[1][0].isalpha():
            return f"Bash({argv[0]} {argv[1]}:*)"
    exact = command.strip()
    if re.search(r"[*?\[]", exact) or len(exact) > 300:
        return ""
    try:
        Rule.parse(f"Bash({exact})")
    except UsageError:
        return ""
    return f"Bash({exact})"


def _planning() -> Verdict:
    return Verdict(
        "deny", "plan mode only reads; propose the change and let the person leave plan mode first"
    )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links, which names no file
        return path


def _inside(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _naming(rules: tuple[Rule, ...], tool: str) -> Rule | None:
    """The first rule about every call of this tool."""
    return next((rule for rule in rules if not rule.pattern and rule.names(tool)), None)
