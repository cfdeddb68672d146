"""May a shell command run? Judged part by part: each simple command, each redirection, and the files that
its words may name. What is not understood asks; what destroys asks in every mode.

What a command would do is read by `shell_code`; files are judged by `paths`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.core.text import one_line
from letta_code.errors import UsageError
from letta_code.tools.permissions.paths import PathJudge, resolved
from letta_code.tools.permissions.rules import Rule
from letta_code.tools.permissions.verdicts import ALLOW, Kind, Standing, Verdict, planning, strictest
from letta_code.tools.shell_code.destructive import destruction
from letta_code.tools.shell_code.paths import (
    MOST,
    Places,
    candidates,
    hands_over_names,
    listed,
    unknown_names,
)
from letta_code.tools.shell_code.reach import TooMany, brings_a_repository, reached
from letta_code.tools.shell_code.reading import exposed, is_sink, reads
from letta_code.tools.shell_code.searching import Wanted
from letta_code.tools.shell_code.syntax import Redirect, ShellCode, SimpleCommand, parse
from letta_code.tools.shell_code.wrappers import base_name, normalised

if TYPE_CHECKING:
    from letta_code.tools.base import Workspace

_FAMILIES = frozenset(
    {"git", "npm", "pnpm", "yarn", "cargo", "docker", "go", "uv", "pip", "kubectl", "gh", "make"}
)
_RUN_ANYTHING = frozenset({"api", "dlx", "exec", "run", "tool", "x"})
"""Subcommands behind which any program can stand: "always" does not offer them as a whole."""
_PLAIN = re.compile(r"[A-Za-z][\w:-]*")
_ONLY_NAMES = frozenset(
    {"[", "basename", "cd", "dirname", "du", "file", "ls", "readlink", "realpath", "stat", "test", "tree"}
)
"""Commands that read names and sizes of files and not what is in them."""
_GIT_ONLY_NAMES = frozenset({"check-ignore", "ls-files", "ls-tree"})
_CHANGING_FILES = frozenset(
    {"chmod", "chown", "cp", "dd", "install", "ln", "mv", "rm", "rmdir", "sed", "tee", "touch", "truncate"}
)
"""Commands whose words are files that they change: rules about writing hold for them."""
_RECURSIVE = r"-[A-Za-z]*[rR].*|--(?:dereference-)?rec.*"
_READS_BELOW = {
    **dict.fromkeys(("tar", "rsync", "zip", "7z", "ag", "ack"), ""),
    **dict.fromkeys(("grep", "egrep", "fgrep", "diff", "scp"), _RECURSIVE),
    **{"cp": r"-[A-Za-z]*[aRr].*|--(?:rec|arch).*", "rg": ""},
    **{"find": r"-exec.*|-ok.*", "git": r"--no-index"},
    **dict.fromkeys(("ln", "mv"), ""),
}
"""Commands that read all files below a folder, or put it where it has another name, and the option that
makes them do so."""
_INTO_THE_LAST = frozenset({"cp", "ln", "mv", "rsync", "scp"})
"""Commands whose last word is where they write."""
_TAKE_TEXT = frozenset({"gh", "git", "letta"})
"""Commands whose words are often text for people, and the files among them words of their own."""
_NAMED_TO_BE_LEFT_OUT = re.compile(r"--(?:exclude|ignore)[a-z-]*=|--i?glob=!")
_PERSONS_COMMANDS = frozenset({"config", "trust"})
"""Commands of `letta` that an agent must not run: they show and change what it may do."""


class CommandJudge:
    """Judges shell commands for one session."""

    def __init__(self, standing: Standing, workspace: Workspace, paths: PathJudge) -> None:
        self._standing = standing
        self._workspace = workspace
        self._paths = paths

    def judge(self, command: str) -> Verdict:
        """May `command` run?"""
        code = parse(command)
        places = Places(code, self._workspace.project, str(Path.home()), self._workspace.memory)
        exactly = self._granted_whole(command)
        verdicts = [self._forbidden(command, code, places), self._out_of_reach(command, code, places)]
        if not exactly:
            verdicts.append(self._destructive(command, code))
        granted = self._standing.mode == "bypassPermissions" or exactly
        verdicts += [self._judge_redirect(redirect, places, granted) for redirect in code.redirects]
        if not granted:
            if code.unknown and not self._everything():
                verdicts.append(self._ask_command(code.unknown[0], command, code))
            verdicts += [self._judge_simple(simple, command, code) for simple in code.commands]
            if (name := exposed(code)) and not self._everything():
                reason = f"it would print ${name}, which is secret by its name"
                verdicts.append(self._ask_command(reason, command, code, reading=True))
            verdicts += self._judge_reading(command, code, places)
            verdicts.append(self._secrets(code, places))
        return strictest(verdicts)

    # What holds whatever is allowed ---------------------------------------------------------------

    def _forbidden(self, command: str, code: ShellCode, places: Places) -> Verdict:
        for decision, rules in (("deny", self._standing.deny), ("ask", self._standing.ask)):
            shell_rules = [rule for rule in rules if rule.tool == "Bash" and rule.pattern]
            for rule in shell_rules:
                if rule.pattern == command.strip() or any(map(rule.may_be, code.commands)):
                    return Verdict(
                        "deny" if decision == "deny" else "ask", f"the rule {rule.text} covers it", remedy=""
                    )
            if shell_rules and code.unknown:
                return Verdict("ask", f"{code.unknown[0]}, so {decision} rules cannot be checked", remedy="")
        return ALLOW

    def _out_of_reach(self, command: str, code: ShellCode, places: Places) -> Verdict:
        """Deny rules about files, this program's own folders, and what only a person does."""
        looked = 0
        for simple in dict.fromkeys(code.commands):
            if _persons_command(simple):
                return Verdict("deny", "trust and settings are for the person to change, not for an agent")
            changes = not reads(simple)
            for path in self._files_of((simple,), places):
                looked += 1
                if looked > MOST:
                    return self._named_somewhere(command)
                verdict = self._paths.denied("read", path)
                if changes and verdict.decision == "allow":
                    verdict = self._paths.closed(resolved(path), "write")
                if changes and verdict.decision == "allow" and _name(simple) in _CHANGING_FILES:
                    verdict = self._paths.ruled_out(path)
                if verdict.decision != "allow":
                    return verdict
            if inside := self._goes_through(simple, places):
                return Verdict(
                    "deny",
                    f"it goes through {one_line(str(inside))}, which belongs to this program; name the "
                    "folders that are wanted, or use Grep and Glob, which leave it out",
                )
        unknown = code.unknown or places.unknown or any(each.target is None for each in code.redirects)
        if unknown or any(map(_hides_names, code.commands)):
            return self._named_somewhere(command)
        return ALLOW

    def _goes_through(self, simple: SimpleCommand, places: Places) -> Path | None:
        """A closed folder that is below one whose files this command reads, all of them."""
        pattern = _READS_BELOW.get(_name(simple))
        if pattern is None or not any(
            part is not None and re.fullmatch(pattern, part) for part in ("", *simple.argv[1:])
        ):
            return None
        name, options = _name(simple), [part for part in simple.argv[1:] if part and part.startswith("-")]
        into = name in _INTO_THE_LAST and len(simple.argv) - len(options) > 2
        if into and not any(re.match(r"-[A-Za-z]*t|--t", part) for part in options):
            simple = replace(simple, argv=simple.argv[:-1])
        named = [path for path in islice(self._files_of((simple,), places), MOST) if path.is_dir()]
        for path in named or (() if name in _INTO_THE_LAST else places.folders):
            for closed in self._paths.own.below(real := resolved(path)):
                dotted = [part for part in closed.relative_to(real).parts if part.startswith(".")]
                seen = name != "rg" or all(map(Wanted.by(simple).shows_hidden, dotted))
                if seen and closed.exists():
                    return closed
        return None

    def _named_somewhere(self, command: str) -> Verdict:
        """What is said about files that stand anywhere in a command which may open more than its words."""
        known = {"HOME": os.path.expanduser("~"), "LETTA_HOME": os.environ.get("LETTA_HOME", "")}
        known |= {"PWD": str(self._workspace.project), "MEMORY_DIR": str(self._workspace.memory or "")}
        text = re.sub(r"(?<![\w~./])~(?=/)", "$HOME", re.sub(r"['\"]", "", command))
        variable = re.compile(rf"\$(?:\{{({'|'.join(known)})\b[^}}]*\}}|({'|'.join(known)})\b)")
        text = variable.sub(lambda match: known[match[1] or match[2]], text)
        named = dict.fromkeys(re.findall(r"(>?)[ \t]*((?:\.\.)?/[^\s`;|&()<>,:]*)", text))
        if len(named) > MOST:
            return Verdict("ask", "it names too many files")
        for written, name in named:
            path = Path(os.path.normpath(self._workspace.project / name))
            verdict = self._paths.denied("write" if written else "read", path)
            if verdict.decision == "deny":
                return verdict
        return ALLOW

    def _destructive(self, command: str, code: ShellCode) -> Verdict:
        reason = destruction(command, code)
        if not reason:
            return ALLOW
        if self._standing.mode == "plan":
            return planning()
        exact = _exactly(command)
        return Verdict("ask", reason, remedy=exact and _allowed_tools(exact))

    def _secrets(self, code: ShellCode, places: Places) -> Verdict:
        """Whether a command that is allowed otherwise would open a file that holds secrets."""
        for simple in dict.fromkeys(code.commands):
            name = _name(simple)
            acts = name == "find" and any(part and part.startswith(("-exec", "-ok")) for part in simple.argv)
            if name in _ONLY_NAMES or (name == "find" and not acts):
                continue
            if name == "git" and not _GIT_ONLY_NAMES.isdisjoint(normalised(simple.argv)[1:2]):
                continue
            kind: Kind = "read" if reads(simple) else "write"
            there = (path for path in self._files_of((simple,), places) if os.path.lexists(path))
            for path in chain(there, self._recorded(simple, places)):
                if self._paths.closed_secret("read", path):
                    verdict = self._paths.judge("Bash", "read", path)
                    if verdict.decision != "allow":
                        return verdict if kind == "read" else Verdict("ask", verdict.reason)
        return ALLOW

    def _recorded(self, simple: SimpleCommand, places: Places) -> Iterator[Path]:
        """What a command of Git names that need not be there any more: `HEAD:.env`, `-- .env`."""
        if _name(simple) != "git":
            return
        left_out = re.compile(r".*\s|:(?:[!^]|\([^)]*exclude)", re.DOTALL)  # or a text for people
        words = [part for part in (*simple.argv, *simple.choices) if part and not left_out.match(part)]
        behind = words[words.index("--") :] if "--" in words else []
        for part in {*behind, *(part.rpartition(":")[2] for part in words if ":" in part)}:
            yield from places.paths(part.lstrip("/"))

    # Files that words name ------------------------------------------------------------------------

    def _files_of(self, commands: Sequence[SimpleCommand], places: Places) -> Iterator[Path]:
        for simple in commands:
            left_out = [part for part in simple.argv if part and _NAMED_TO_BE_LEFT_OUT.match(part)]
            values = {part.partition("=")[2] for part in left_out} - set(simple.argv)
            for known in candidates(simple):
                if known not in left_out and known not in values:
                    yield from places.paths(known)
            found = tuple(each for each in simple.choices if not _NAMED_TO_BE_LEFT_OUT.match(each))
            for choice in listed(replace(simple, choices=found)):
                yield from places.paths(choice, globs=True)

    def _judge_reading(self, command: str, code: ShellCode, places: Places) -> list[Verdict]:
        """What commands that only read may read without a question."""
        allowed = (
            [rule for rule in self._standing.allow if rule.tool == "Bash"]
            if self._standing.mode != "plan"
            else []
        )
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
        for folder in places.folders if any(_name(simple) == "git" for simple in reading) else ():
            if brings_a_repository(folder, self._workspace.project):
                reason = f"{one_line(str(folder))} is a Git repository of its own, with programs it may run"
                verdicts.append(self._ask_command(reason, command, code, reading=True))
        paths = list(islice(self._files_of(reading, places), MOST + 1))
        verdicts += self._judge_reached(command, code, reading, places)
        if any(simple.argv[0] == "cd" for simple in reading):
            paths += places.folders
        if len(paths) > MOST:
            verdicts.append(self._ask_command("it names too many files", command, code, reading=True))
        judged = (
            self._paths.judge("Read", "read", path, secrets=False)  # `_secrets` knows names from contents
            for path in dict.fromkeys(paths[:MOST])
        )
        verdicts += [verdict for verdict in judged if verdict.decision != "allow"]
        return verdicts

    def _judge_reached(
        self, command: str, code: ShellCode, reading: list[SimpleCommand], places: Places
    ) -> Iterator[Verdict]:
        """What commands print of files below the folders that they go through."""
        left_out, project = self._paths.left_out(Path("/")), self._workspace.project.resolve()
        asked = False  # then only what is denied matters
        try:
            for path in reached(code, reading, places):
                open_to_all = asked or path.is_relative_to(project)
                if open_to_all and not os.path.islink(path) and not left_out(str(path)[1:]):
                    continue
                verdict = self._paths.judge("Read", "read", path)
                if verdict.decision != "allow":
                    asked = True
                    yield Verdict(verdict.decision, f"it goes through folders, and {verdict.reason}")
        except TooMany:
            yield self._ask_command("it goes through too many files", command, code, reading=True)

    def _judge_redirect(self, redirect: Redirect, places: Places, granted: bool) -> Verdict:
        target, mode = redirect.target, self._standing.mode
        if is_sink(target):
            return ALLOW
        if target is None or "\0" in target or (places.unknown and not target.startswith(("/", "~"))):
            if granted and (not redirect.write or mode == "bypassPermissions"):
                return ALLOW
            if not redirect.write:
                return Verdict("ask", "what it reads is not known")
            return planning() if mode == "plan" else Verdict("ask", "where it writes is not known")
        kind: Kind = "write" if redirect.write else "read"
        return strictest(
            self._paths.judge("Bash", kind, path, secrets=not redirect.looks)
            for path in places.paths(target, globs=True)
        )

    # Commands -------------------------------------------------------------------------------------

    def _judge_simple(self, simple: SimpleCommand, command: str, code: ShellCode) -> Verdict:
        if reads(simple):
            return ALLOW
        shell_rules = [rule for rule in self._standing.allow if rule.tool == "Bash"]
        allowed = any(not rule.pattern or rule.allows_command(simple) for rule in shell_rules)
        if allowed and self._standing.mode != "plan":
            return ALLOW
        return self._ask_command(f"it runs `{one_line(simple.argv[0] or '', 40)}`", command, code)

    def _everything(self) -> bool:
        """Whether any command is allowed."""
        return self._standing.mode != "plan" and any(
            rule.tool == "Bash" and not rule.pattern for rule in self._standing.allow
        )

    def _granted_whole(self, command: str) -> bool:
        return self._standing.mode != "plan" and any(
            rule.tool == "Bash" and rule.pattern == command.strip() and "*" not in rule.pattern
            for rule in self._standing.allow
        )

    def _ask_command(self, reason: str, command: str, code: ShellCode, *, reading: bool = False) -> Verdict:
        if self._standing.mode == "plan" and not reading:
            return planning()
        return Verdict("ask", reason, _offer(command, code))


def _hides_names(simple: SimpleCommand) -> bool:
    """Whether a command may open files that are no words of it: words that are only known at run time, and
    programs that may take names as part of code or of other words."""
    return None in simple.argv or not (reads(simple) or _name(simple) in _TAKE_TEXT)


def _persons_command(simple: SimpleCommand) -> bool:
    words = [part for part in simple.argv if part is not None]
    name = _name(simple)
    if re.fullmatch(r"python[\d.]*", name) and words[1:3] == ["-m", "letta_code"]:
        words = words[2:]
    elif name != "letta":
        return False
    given = [part for part in words[1:] if not part.startswith("-")]
    return not _PERSONS_COMMANDS.isdisjoint(given)


def _name(simple: SimpleCommand) -> str:
    return base_name(simple.argv[0] or "")


def _offer(command: str, code: ShellCode) -> str:
    """The rule "always" would add: the subcommand of a well-known family, else exactly this command."""
    asking = [simple for simple in code.commands if not reads(simple)]
    if len(asking) == 1 and not code.unknown:
        words = [part if part and _PLAIN.fullmatch(part) else None for part in asking[0].argv[:3]]
        if words[0] in _FAMILIES and words[1:2] not in ([], [None]) and words[1] not in _RUN_ANYTHING:
            return f"Bash({words[0]} {words[1]}:*)"
        if words[0] in ("npm", "pnpm", "yarn") and words[1:2] == ["run"] and words[2:3] not in ([], [None]):
            return f"Bash({words[0]} run {words[2]}:*)"
    return _exactly(command)


def _exactly(command: str) -> str:
    """The rule for this one command; "" when the syntax cannot say that."""
    exact = command.strip()
    if re.search(r"[*?\[]", exact) or len(exact) > 300:
        return ""
    try:
        Rule.parse(f"Bash({exact})")
    except UsageError:
        return ""
    return f"Bash({exact})"


def _allowed_tools(rule: str) -> str:
    from shlex import quote

    return f"--allowed-tools {quote(rule)}"
