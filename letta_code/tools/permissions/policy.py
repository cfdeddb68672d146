"""May this call run? Judged by mode, rules and what the call would touch; nobody is asked here.

Deny beats ask beats allow. This program's own folders are closed in every mode. What a call touches is
judged by `paths` and `commands`; which files are special is `protection`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from letta_code.errors import UsageError
from letta_code.tools.permissions.commands import CommandJudge
from letta_code.tools.permissions.paths import PathJudge, naming
from letta_code.tools.permissions.rules import Rule, Rules, parse_rules
from letta_code.tools.permissions.verdicts import ALLOW, Mode, Standing, Verdict, by_rule, planning, strictest

if TYPE_CHECKING:  # the argument classes load pydantic
    from letta_code.tools.base import Access, Arguments, Tool, Workspace
    from letta_code.tools.permissions.sight import LeftOut

__all__ = ["Mode", "Policy", "StandingRule", "Verdict", "mode_named"]

_OWN_TOOLS = frozenset({"TodoWrite", "KillShell", "BashOutput"})
SESSION = "this session"


@dataclass(frozen=True, slots=True)
class StandingRule:
    """A rule that holds now, as text, and where it was given."""

    decision: Literal["allow", "ask", "deny"]
    text: str
    origin: str


class Policy:
    """The permissions of a session."""

    def __init__(self, mode: Mode, rules: Rules, workspace: Workspace, holds: bool = False) -> None:
        """`holds`: what enters memory unasked waits for the person's review."""
        self._holds = holds
        self._workspace = workspace
        self._origins = rules.origins
        self._granted: set[str] = set()
        self._may_bypass = mode == "bypassPermissions"
        self._standing = Standing(
            mode, parse_rules(rules.allow), parse_rules(rules.ask), parse_rules(rules.deny)
        )
        self._paths = PathJudge(self._standing, workspace)
        self._commands = CommandJudge(self._standing, workspace, self._paths)

    @property
    def mode(self) -> Mode:
        """The mode that holds now."""
        return self._standing.mode

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that this session may change to: bypassPermissions only when it began so."""
        return tuple(mode for mode in get_args(Mode) if mode != "bypassPermissions" or self._may_bypass)

    def set_mode(self, name: str) -> None:
        """Change the mode from the next call on.

        Raises:
            UsageError: there is no such mode, or this session may not have it.
        """
        mode = mode_named(name)
        if mode not in self.modes:
            raise UsageError(
                "bypassPermissions is chosen at the start, not during a chat",
                "letta -c --permission-mode bypassPermissions goes on with it",
            )
        self._standing.mode = mode

    def grant(self, rule: str) -> None:
        """Allow what `rule` covers for this session. Raises `UsageError` when it is no rule."""
        self._standing.allow = (*self._standing.allow, Rule.parse(rule))
        self._granted.add(rule)

    def rules(self) -> Sequence[StandingRule]:
        """The rules that hold now, the strictest first."""
        found = []
        parts: tuple[tuple[Literal["allow", "ask", "deny"], tuple[Rule, ...]], ...] = (
            ("deny", self._standing.deny),
            ("ask", self._standing.ask),
            ("allow", self._standing.allow),
        )
        for decision, rules in parts:
            for rule in rules:
                granted = decision == "allow" and rule.text in self._granted
                origin = SESSION if granted else self._origins.get((decision, rule.text), "")
                found.append(StandingRule(decision, rule.text, origin))
        return found

    def judge(self, tool: Tool[Any], arguments: Arguments, outside: str = "") -> Verdict:
        """May `tool` run with these arguments? `outside` says where text that it would put into memory was
        copied from, when that is neither the person nor memory."""
        accesses = tool.accesses(arguments)
        verdicts = [
            self._judge_tool(tool, bool(accesses), tool.has_effects(arguments)),
            self._judge_remembered(tool, arguments, outside),
        ]
        if verdicts[0].decision != "deny":
            verdicts += [self._judge_access(tool, access) for access in accesses]
        verdict = strictest(verdicts)
        touched = tuple(path for each in verdicts for path in each.paths)
        return replace(verdict, remedy=self._remedy(verdict), paths=touched)

    def left_out(self, root: Path) -> Callable[[str], LeftOut]:
        """For a search below `root` (resolved): why it leaves out the content of a file, named relative
        to it."""
        return self._paths.left_out(root)

    def in_memory(self, accesses: Sequence[Access]) -> bool:
        """Whether a call touches files of the agent's memory and nothing else."""
        return bool(accesses) and all(
            access.kind != "command" and self._workspace.is_memory(access.target) for access in accesses
        )

    def _judge_remembered(self, tool: Tool[Any], arguments: Arguments, outside: str) -> Verdict:
        if self.mode == "bypassPermissions" or naming(self._standing.allow, "memory"):
            return ALLOW
        remembered = tool.remembers(arguments) if self._holds and tool.kind == "memory" else None
        if remembered is not None and remembered.reviewable:
            return ALLOW
        if remembered is not None and not remembered.stated:
            return Verdict(
                "ask",
                "memory.review is hold, and what goes into the archive cannot be held back for it",
                remedy="--allowed-tools 'memory'",
            )
        if not outside:
            return ALLOW
        return Verdict(
            "ask",
            f"it would put text into memory that comes from {outside} and was not said in this conversation. "
            "Only a rule that allows `memory` lets such text in unasked",
            remedy="--allowed-tools 'memory'",
        )

    def _judge_tool(self, tool: Tool[Any], has_accesses: bool, has_effects: bool) -> Verdict:
        if rule := naming(self._standing.deny, tool.name):
            return by_rule("deny", rule)
        if rule := naming(self._standing.ask, tool.name):
            return by_rule("ask", rule)
        if tool.name in _OWN_TOOLS or tool.kind == "read" or (has_accesses and tool.kind != "memory"):
            return ALLOW  # accesses are judged one by one
        if tool.kind == "memory" and not has_effects:
            return ALLOW
        if self.mode == "plan":
            return planning()
        bypass = self.mode == "bypassPermissions"
        if tool.kind == "memory" or bypass or naming(self._standing.allow, tool.name):
            return ALLOW
        return Verdict("ask", f"{tool.name} may change something", tool.name)

    def _judge_access(self, tool: Tool[Any], access: Access) -> Verdict:
        if access.kind == "command":
            return self._commands.judge(access.target)
        return self._paths.judge(tool.name, access.kind, self._workspace.absolute(access.target))

    def _remedy(self, verdict: Verdict) -> str:
        if verdict.decision != "ask" or verdict.remedy is not None:
            return verdict.remedy or ""
        if verdict.rule:
            return f"--allowed-tools {quote(verdict.rule)}"
        return "" if self.mode == "bypassPermissions" else "--permission-mode bypassPermissions"


def mode_named(name: str) -> Mode:
    """The mode called `name`. Raises `UsageError` when there is none."""
    if name not in get_args(Mode):
        raise UsageError(f"no such permission mode: {name}", f"one of {', '.join(get_args(Mode))}")
    return cast(Mode, name)
