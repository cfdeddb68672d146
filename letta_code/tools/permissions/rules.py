"""Permission rules: their syntax, and what they match.

`Tool` matches every call of a tool (`mcp__server` every tool of that server); `Tool(pattern)` matches by
what the call touches. `Bash(git log:*)` and `Bash(git log *)` match commands that begin with these words,
`Bash(npm test)` exactly that command; `Edit(src/**)` matches writes by any tool, `Read(~/x/**)` reads.
Paths are relative to the project, `~/` to the home folder, `//` to the root of the file system.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from letta_code.errors import UsageError
from letta_code.tools.shell_code.reading import git_acts
from letta_code.tools.shell_code.syntax import SimpleCommand
from letta_code.tools.shell_code.words import Word
from letta_code.tools.shell_code.wrappers import normalised

_SYNTAX = re.compile(r"([A-Za-z_][A-Za-z0-9_*-]*)(?:\((\s*\S.*)\))?\Z", re.DOTALL)
_ALIASES = {
    "Write": "Edit",
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "Glob": "Read",
    "Grep": "Read",
    "LS": "Read",
}
_TOOLS = {name.casefold(): name for name in ("Bash", "Edit", "Read", *_ALIASES)}
_HINT = "a rule is a tool's name, or Tool(pattern): Bash(git log:*), Edit(src/**), Read(~/notes/**)"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `text` as written, the tool it names, and its pattern, empty for every call."""

    text: str
    tool: str
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read a rule.

        Raises:
            UsageError: it is not one.
        """
        match = _SYNTAX.match(text.strip())
        if match is None:
            raise UsageError(f"not a permission rule: {text[:100]!r}", _HINT)
        tool, pattern = _TOOLS.get(match[1].casefold(), match[1]), (match[2] or "").strip()
        if pattern in ("*", "**", ":*"):
            pattern = ""
        if tool == "Bash" and pattern:
            try:
                _words(pattern)
            except ValueError as error:
                raise UsageError(f"permission rule {text[:100]!r}: {error}", _HINT) from error
        return cls(text.strip(), tool, pattern)

    def names(self, tool: str) -> bool:
        """Whether it is about this tool, or about what this tool does (`Edit` covers `Write`)."""
        if self.tool.startswith("mcp__"):
            return tool == self.tool or tool.startswith(self.tool + "__") or fnmatchcase(tool, self.tool)
        if self.pattern and _ALIASES.get(self.tool, self.tool) == _ALIASES.get(tool, tool):
            return True
        return fnmatchcase(tool, self.tool) or (self.tool == "Edit" and _ALIASES.get(tool) == "Edit")

    def reads_or_writes(self) -> str:
        """ "read" or "write" for a rule about paths, else empty."""
        return {"Edit": "write", "Read": "read"}.get(_ALIASES.get(self.tool, self.tool), "")

    def matches_path(self, path: Path, project: Path) -> bool:
        """Whether its pattern covers `path` (absolute) or a folder above it."""
        return self.path_expression(project).match(str(path)) is not None

    def path_expression(self, project: Path) -> re.Pattern[str]:
        """What the absolute paths look like that its pattern names, or that are below such a path."""
        return _path_expression(self.pattern, project, os.path.expanduser("~"))

    def allows_command(self, command: SimpleCommand) -> bool:
        """Whether it covers this simple command, exactly as it is spelled. A rule about a subcommand of Git
        does not cover options that make Git write a file or run a program."""
        words = _words(self.pattern)
        if command.assigned or not _matches(words, command.argv, unknown=False):
            return False
        behind = command.argv[2:] if words[:1] == ["git"] and words[1:2] not in ([], ["*"]) else ()
        given = [part for part in behind if part is not None and part not in words]
        return not git_acts([*given, *command.choices])

    def may_be(self, command: SimpleCommand) -> bool:
        """Whether this simple command is, or at run time could be, one that the rule is about: for
        deny and ask."""
        words = _words(self.pattern)
        argv = normalised(command.argv)
        return _matches(words, argv, unknown=True) or _matches(words, command.argv, unknown=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a session, as text. Deny beats ask beats allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    origins: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Where a rule was given, for people, by what it does ("allow", …) and its text."""


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """Every rule parsed. Raises `UsageError` for the first bad one."""
    return tuple(Rule.parse(text) for text in texts)


def _words(pattern: str) -> list[str]:
    """The words of a Bash pattern; a last `*` stands for any further words."""
    if pattern.endswith(":*"):
        return [*shlex.split(pattern[:-2]), "*"]
    return shlex.split(pattern)


def _matches(words: list[str], argv: tuple[Word, ...], *, unknown: bool) -> bool:
    """`unknown`: what a word that is only known at run time counts as."""
    open_ended = bool(words) and words[-1] == "*"
    fixed = words[:-1] if open_ended else words
    if len(argv) < len(fixed):
        return unknown and None in argv
    if len(argv) > len(fixed) and not open_ended:
        return False
    for pattern, value in zip(fixed, argv, strict=False):
        if value is None:
            if not unknown:
                return False
        elif not fnmatchcase(value, pattern):
            return False
    return True


@lru_cache(maxsize=512)
def _path_expression(pattern: str, project: Path, home: str) -> re.Pattern[str]:
    if pattern.startswith("//"):
        base, rest = Path("/"), pattern[2:]
    elif pattern == "~" or pattern.startswith("~/"):
        base, rest = Path(home), pattern[2:]
    else:
        base, rest = project, pattern.removeprefix("./").lstrip("/")
        if "/" not in pattern.rstrip("/"):
            rest = f"**/{rest}"
    parts = [part for part in rest.split("/") if part]
    while parts and not re.search(r"[*?\[]", parts[0]):
        base /= parts.pop(0)
    # As it is named, too: a link on the way may lead elsewhere by the time a path is judged.
    bases = {re.escape(str(each)).removesuffix("/") for each in (base, _resolved(base))}
    expression = f"(?:{'|'.join(sorted(bases))})"
    for part in parts:
        if part == "**":
            expression += r"(?:/[^/]+)*"
        else:
            expression += "/" + "".join(
                "[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char) for char in part
            )
    return re.compile(expression + r"(?:/.*)?\Z", re.DOTALL)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links names no file
        return path
