"""May a file be read or written? Judged where the path really leads: by this program's own folders, rules,
mode, and what kind of file it is."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.core.text import one_line
from letta_code.errors import UsageError
from letta_code.paths import Paths
from letta_code.tools.permissions.protection import (
    OwnFolders,
    obeyed,
    other_names,
    our_project_settings,
    secret,
)
from letta_code.tools.permissions.rules import Rule
from letta_code.tools.permissions.verdicts import ALLOW, Kind, Standing, Verdict, by_rule, planning

if TYPE_CHECKING:
    from letta_code.tools.base import Workspace
    from letta_code.tools.permissions.sight import LeftOut


class PathJudge:
    """Judges paths for one session."""

    def __init__(self, standing: Standing, workspace: Workspace) -> None:
        self._standing = standing
        self._project = workspace.project.resolve()
        self._roots = tuple(root.resolve() for root in workspace.roots)
        self._readable = (*self._roots, workspace.overflow.resolve())
        self.own = OwnFolders.of(Paths.from_environment(), workspace.memory, workspace.overflow)

    def judge(self, tool: str, kind: Kind, given: Path, *, secrets: bool = True) -> Verdict:
        """May `tool` do this with `given` (absolute, not resolved)? `paths` of the verdict is where that
        leads. Without `secrets` it does not matter whether the file holds some."""
        try:
            path = given.resolve()
            if path.resolve() != path:  # Python 3.11 drops a loop of links that ".." follows: "loop/../a"
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        except (OSError, RuntimeError, ValueError):
            return Verdict("ask", f"{one_line(str(given))} cannot be resolved")
        verdict = self._judged(tool, kind, path, given, secrets)
        return Verdict(verdict.decision, verdict.reason, verdict.rule, verdict.remedy, (path,))

    def denied(self, kind: Kind, given: Path) -> Verdict:
        """What holds in every mode: this program's own folders and deny rules; else it is allowed."""
        path = resolved(given)
        if rule := self._about(self._standing.deny, kind, path, given):
            return by_rule("deny", rule)
        return self.closed(path, kind)

    def closed(self, path: Path, kind: Kind) -> Verdict:
        """Denied where `path` (resolved) is of this program's own folders, else allowed."""
        if reason := self.own.refuses(path, kind):
            return Verdict("deny", f"{one_line(str(path))}: {reason}")
        return ALLOW

    def ruled_out(self, given: Path) -> Verdict:
        """What deny and ask rules say about writing `given`."""
        for decision, rules in (("deny", self._standing.deny), ("ask", self._standing.ask)):
            if rule := self._about(rules, "write", resolved(given), given):
                return by_rule("deny" if decision == "deny" else "ask", rule)
        return ALLOW

    def closed_secret(self, kind: Kind, given: Path) -> bool:
        """Whether `given` is a secrets file that no rule opens."""
        path = resolved(given)
        return (secret(path) or secret(given)) and not self._opened(kind, path, secret)

    def left_out(self, root: Path) -> Callable[[str], LeftOut]:
        """For a search below `root` (resolved): why it leaves out the content of a file, named relative
        to it."""
        closed = tuple(f"{each.relative_to(root)}/" for each in self.own.below(root))
        denying = [
            rule.path_expression(self._project)
            for rule in self._standing.deny
            if rule.reads_or_writes() == "read" and rule.pattern
        ]

        def reason(relative: str) -> LeftOut:
            if closed and relative.startswith(closed) and self.own.refuses(root / relative, "read"):
                return "own"
            path = root / relative
            if denying and any(expression.match(str(path)) for expression in denying):
                return "denied"
            bypass = self._standing.mode == "bypassPermissions"
            if not bypass and secret(path) and not self._opened("read", path, secret):
                return "secret"
            return ""

        return reason

    # One path -------------------------------------------------------------------------------------

    def _judged(self, tool: str, kind: Kind, path: Path, given: Path, secrets: bool) -> Verdict:
        standing = self._standing
        denied = self.denied(kind, given)
        if denied.decision == "deny":
            return denied
        if rule := self._about(standing.ask, kind, path, given):
            return by_rule("ask", rule)
        if kind == "write" and standing.mode == "plan":
            return planning()
        if standing.mode == "bypassPermissions":
            return ALLOW
        if secrets and self.closed_secret(kind, given):
            secret_rule = rule_for("Read" if kind == "read" else "Edit", path)
            return Verdict("ask", f"{one_line(str(path))} holds secrets by its name", secret_rule)
        if kind == "write" and (special := self._special(path)):
            return special
        # A rule relative to the project cannot lead out of it by a link.
        within = _inside(path, self._roots)
        allowing = tuple(rule for rule in standing.allow if within or rule.pattern.startswith(("//", "~/")))
        everywhere = within or kind == "read"
        if self._about(allowing, kind, path, path) or (everywhere and naming(standing.allow, tool)):
            return ALLOW
        shown = one_line(str(path))
        if kind == "read":
            if _inside(path, self._readable):
                return ALLOW
            return Verdict("ask", f"{shown} is outside the project", _folder_rule("Read", path))
        if not _inside(path, self._roots):
            return Verdict("ask", f"{shown} is outside the project", _folder_rule("Edit", path))
        if standing.mode == "acceptEdits":
            return ALLOW
        root = next(root for root in self._roots if path.is_relative_to(root))
        return Verdict("ask", f"it changes {shown}", rule_for("Edit", root, "/**"))

    def _special(self, path: Path) -> Verdict | None:
        """The question about writing a file that mode and broad rules do not open."""
        shown = one_line(str(path))
        if our_project_settings(path) or path.is_relative_to(self.own.skills):
            return Verdict("ask", f"{shown} is a settings file of this program")
        if (reason := obeyed(path)) and not self._opened("write", path, lambda part: bool(obeyed(part))):
            return Verdict("ask", f"{shown} is {reason}")
        if more := other_names(path):
            names = "another name" if more == 1 else f"{more} other names"
            return Verdict("ask", f"{shown} has {names} (hard links): the file changes under each of them")
        return None

    def _about(self, rules: tuple[Rule, ...], kind: Kind, path: Path, given: Path) -> Rule | None:
        for rule in rules:
            about = rule.reads_or_writes() == kind and rule.pattern
            if about and any(rule.matches_path(each, self._project) for each in {path, given}):
                return rule
        return None

    def _opened(self, kind: Kind, path: Path, about: Callable[[Path], bool]) -> bool:
        """Whether an allow rule is about this kind of file: `Read(.env)`, not the `Read(**)` it lies in."""
        for rule in self._standing.allow:
            if rule.reads_or_writes() == kind and rule.pattern and rule.matches_path(path, self._project):
                fixed = re.sub(r"(?:/\*+)+\Z", "", rule.pattern)
                fixed = fixed[1:] if fixed.startswith("//") else fixed
                if about(Path(fixed).expanduser()):
                    return True
        return False


def rule_for(tool: str, path: Path, below: str = "") -> str:
    """The rule that covers `path` (absolute), with `below` (such as "/**"), and nothing else; "" when the
    syntax cannot say that."""
    text = str(path)
    if re.search(r"[*?\[\]\n\r\\]", text) or (not below and text.strip() != text):
        return ""
    rule = f"{tool}(/{text.rstrip('/') if below else text}{below})"
    try:
        Rule.parse(rule)
        rule.encode()
    except (UsageError, UnicodeEncodeError):
        return ""
    return rule


def resolved(path: Path) -> Path:
    """Where `path` leads; itself when that cannot be told (a loop of links names no file)."""
    try:
        return path.resolve().resolve()  # twice, as in judge
    except (OSError, RuntimeError, ValueError):
        return path


def naming(rules: tuple[Rule, ...], tool: str) -> Rule | None:
    """The first rule about every call of this tool."""
    return next((rule for rule in rules if not rule.pattern and rule.names(tool)), None)


def _folder_rule(tool: str, path: Path) -> str:
    """The rule for the folder of `path`; for the file alone where the folder would be too much."""
    folder = path if path.is_dir() else path.parent
    if Path.home().resolve().is_relative_to(folder):  # the root and all that is above home, too
        return "" if path.is_dir() else rule_for(tool, path)
    return rule_for(tool, folder, "/**")


def _inside(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
