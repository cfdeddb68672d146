"""Glob, Grep and LS: find files, find text, list a folder.

Searches see hidden files but not what ignore rules (.gitignore and its kin) hide, nor `.git`; the
result says how many matching files that hid. A folder or file that a path or pattern names is searched
whatever the rules say. Results are sorted by path. Running ripgrep is `ripgrep`, patterns are `globs`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from letta_code.core.tooling import ToolKind, ToolOutput
from letta_code.errors import ToolError
from letta_code.nofollow import open_folder
from letta_code.tools.base import Access, Arguments, Call, Tool, Workspace
from letta_code.tools.diskfile import failed, located, missing, show, show_name
from letta_code.tools.globs import is_literal, matcher, split_prefix
from letta_code.tools.permissions.sight import Seen, Sight, all_is_seen
from letta_code.tools.searching import Scope, content_lines, counts, listing, scope_of

GLOB_LIMIT = 200
LS_LIMIT = 1_000
GREP_LIMIT = 250
MAX_CHARACTERS = 30_000
_NOTICE_ROOM = 1_000


class GlobArguments(Arguments):
    """Which files."""

    pattern: str
    path: str | None = None


class Glob(Tool[GlobArguments]):
    """Find files by name."""

    name: ClassVar[str] = "Glob"
    kind: ClassVar[ToolKind] = "read"
    arguments = GlobArguments

    def __init__(self, workspace: Workspace, sight: Sight = all_is_seen) -> None:
        """`sight`: what is left out below a folder."""
        self._workspace = workspace
        self._sight = sight

    def accesses(self, arguments: GlobArguments) -> tuple[Access, ...]:
        """The folder below which it looks."""
        root = self._workspace.absolute(_joined(arguments.path, split_prefix(arguments.pattern)[0]))
        return (Access("read", str(root)),)

    def title(self, arguments: GlobArguments) -> str:
        """One line for people."""
        return show_name(f"Glob {arguments.pattern}" + (f" in {arguments.path}" if arguments.path else ""))

    async def run(self, arguments: GlobArguments, call: Call) -> ToolOutput:
        """The paths."""
        if not arguments.pattern.strip():
            raise ToolError("the pattern is empty")
        prefix, rest = split_prefix(arguments.pattern)
        scope = _scope(self._workspace, _joined(arguments.path, prefix), call)
        test = Seen(matcher(rest or "**"), self._sight(scope.folder), names=True)
        found, cut = await listing(scope, ["--files", "--null"], test)
        hidden: list[str] = []
        if not scope.everything:
            everything, hidden_cut = await listing(scope.unrestricted(), ["--files", "--null"], test)
            hidden = sorted(set(everything) - set(found))
        notes = [f"[the search {cut}: there may be more]"] if cut else []
        if not found and hidden and any(is_literal(part) for part in rest.split("/")):
            found, hidden = hidden, []
            notes.append("[ignore rules hide all of these]")
        if hidden:
            notes.append(_hidden_note(scope, hidden, bool(hidden_cut)))
        notes += test.notes()
        if not found:
            return ToolOutput.of("\n".join(["No files found.", *notes]))
        names = [show(self._workspace, scope.folder / path) for path in found]
        return ToolOutput.of(_listed(names, 0, GLOB_LIMIT, notes, "narrow the pattern to see the rest"))


class GrepArguments(Arguments):
    """What to search for, where, and what to show."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    pattern: str
    path: str | None = None
    glob: str | None = None
    type: str | None = Field(None, description="such as py, js, rust")
    output_mode: Literal["files_with_matches", "content", "count"] = "files_with_matches"
    ignore_case: bool = Field(False, alias="-i")
    numbers: bool = Field(True, alias="-n")
    after: int = Field(0, alias="-A")
    before: int = Field(0, alias="-B")
    context: int = Field(0, alias="-C")
    multiline: bool = False
    head_limit: int = GREP_LIMIT
    offset: int = 0


class Grep(Tool[GrepArguments]):
    """Find text in files."""

    name: ClassVar[str] = "Grep"
    kind: ClassVar[ToolKind] = "read"
    arguments = GrepArguments

    def __init__(self, workspace: Workspace, sight: Sight = all_is_seen) -> None:
        """`sight`: what is left out below a folder."""
        self._workspace = workspace
        self._sight = sight

    def accesses(self, arguments: GrepArguments) -> tuple[Access, ...]:
        """The folder or file that it searches."""
        return (Access("read", str(self._workspace.absolute(self._where(arguments)[0]))),)

    def title(self, arguments: GrepArguments) -> str:
        """One line for people."""
        return show_name(f"Grep {arguments.pattern}" + (f" in {arguments.path}" if arguments.path else ""))

    def _where(self, arguments: GrepArguments) -> tuple[str, str]:
        """The path to search and the rest of the glob: a folder that the glob names is the path."""
        glob = arguments.glob or ""
        if glob.startswith("!"):
            return arguments.path or ".", glob
        prefix, rest = split_prefix(glob)
        return _joined(arguments.path, prefix), rest if prefix else glob

    async def run(self, arguments: GrepArguments, call: Call) -> ToolOutput:
        """The matches."""
        options, test, scope = self._prepared(arguments, call)
        wanted = arguments.offset + (arguments.head_limit or MAX_CHARACTERS)
        visible: list[str] | None = None
        if arguments.output_mode == "content":
            around = (arguments.before or arguments.context, arguments.after or arguments.context)
            entries, visible, cut = await content_lines(
                scope, options, test, around, wanted + 1, self._label(scope, arguments.numbers)
            )
        elif arguments.output_mode == "count":
            counted, cut = await counts(scope, options, test)
            visible = [path for path, _ in counted]
            entries = [f"{show(self._workspace, scope.folder / path)}:{count}" for path, count in counted]
        else:
            visible, cut = await listing(scope, ["-l", "--null", *options], test)
            entries = [show(self._workspace, scope.folder / path) for path in visible]
        notes = [f"[the search {cut}: there may be more]"] if cut else []
        if not scope.everything:
            notes += await self._hidden(scope, options, test, visible)
        notes += test.notes()
        if not entries:
            return ToolOutput.of("\n".join(["No matches found.", *notes]))
        if arguments.offset >= len(entries):
            raise ToolError(f"offset {arguments.offset}: there are only {len(entries)} results")
        limit = arguments.head_limit or len(entries)
        return ToolOutput.of(_listed(entries, arguments.offset, limit, notes, ""))

    def _prepared(self, arguments: GrepArguments, call: Call) -> tuple[list[str], Seen, Scope]:
        if not arguments.pattern:
            raise ToolError("the pattern is empty")
        if len(arguments.pattern) > 20_000:
            raise ToolError("the pattern is too long (over 20,000 characters)")
        numbers = (
            arguments.after,
            arguments.before,
            arguments.context,
            arguments.head_limit,
            arguments.offset,
        )
        if min(numbers) < 0:
            raise ToolError("-A, -B, -C, head_limit and offset cannot be negative")
        options = ["--engine=auto", f"--regexp={arguments.pattern}"]
        if arguments.ignore_case:
            options.append("--ignore-case")
        if arguments.multiline:
            options += ["--multiline", "--multiline-dotall"]
        if arguments.type:
            options.append(f"--type={arguments.type}")
        path, glob = self._where(arguments)
        if glob and "/" not in glob and not glob.startswith("!") and not arguments.type:
            # A type narrows the search without overriding ignore rules, which --glob would.
            options += [f"--type-add=lettaglob:{glob}", "--type=lettaglob"]
        scope = _scope(self._workspace, path, call)
        sight = all_is_seen if scope.target else self._sight  # a file that is named was judged by itself
        return options, Seen(_Test(glob), sight(scope.folder)), scope

    def _label(self, scope: Scope, numbers: bool) -> _Label:
        return _Label(self._workspace, scope, numbers)

    async def _hidden(
        self, scope: Scope, options: list[str], test: Seen, visible: list[str] | None
    ) -> list[str]:
        files = ["-l", "--null", *options]
        if visible is None:
            visible, _ = await listing(scope, files, test)
        everything, cut = await listing(scope.unrestricted(), files, test)
        hidden = sorted(set(everything) - set(visible))
        return [_hidden_note(scope, hidden, bool(cut))] if hidden else []


@dataclass(frozen=True, slots=True)
class _Test:
    """Whether a path passes the `glob` argument (which may start with `!`)."""

    glob: str

    def __call__(self, path: str) -> bool:
        if not self.glob:
            return True
        if self.glob.startswith("!"):
            return not matcher(self.glob[1:])(path)
        return matcher(self.glob)(path)


@dataclass(frozen=True, slots=True)
class _Label:
    """How a line of content mode begins."""

    workspace: Workspace
    scope: Scope
    numbers: bool

    def __call__(self, path: str, number: int | None, mark: str) -> str:
        name = show(self.workspace, self.scope.folder / path)
        return f"{name}{mark}{number}{mark}" if self.numbers and number is not None else f"{name}{mark}"


class LSArguments(Arguments):
    """Which folder."""

    path: str = "."
    ignore: tuple[str, ...] = ()


class LS(Tool[LSArguments]):
    """List a folder."""

    name: ClassVar[str] = "LS"
    kind: ClassVar[ToolKind] = "read"
    arguments = LSArguments

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def accesses(self, arguments: LSArguments) -> tuple[Access, ...]:
        """The folder."""
        return (Access("read", str(self._workspace.absolute(arguments.path))),)

    def title(self, arguments: LSArguments) -> str:
        """One line for people."""
        return f"List {show(self._workspace, self._workspace.absolute(arguments.path))}"

    async def run(self, arguments: LSArguments, call: Call) -> ToolOutput:
        """The names: folders with `/`, symlinks with `@`, folders first."""
        path = located(self._workspace, arguments.path, call)
        name = show(self._workspace, path)
        tests = [matcher(pattern.rstrip("/")) for pattern in arguments.ignore]
        try:
            folder = open_folder(path)
            try:
                with os.scandir(folder) as entries:
                    found = sorted(
                        (not entry.is_dir(), os.fsencode(entry.name), _entry(entry))
                        for entry in entries
                        if not any(test(entry.name) for test in tests)
                    )
            finally:
                os.close(folder)
        except FileNotFoundError as error:
            raise missing(path, name) from error
        except NotADirectoryError as error:
            raise ToolError(f"{name} is a file: use Read") from error
        except OSError as error:
            raise failed("list", name, error) from error
        if not found:
            return ToolOutput.of(f"{name} is empty" + (" apart from ignored names." if tests else "."))
        return ToolOutput.of(_listed([line for *_, line in found], 0, LS_LIMIT, [], "use Glob for the rest"))


def _entry(entry: os.DirEntry[str]) -> str:
    mark = "/" if entry.is_dir() else ""
    return show_name(entry.name) + ("@" if entry.is_symlink() else "") + mark


def _joined(path: str | None, below: str) -> str:
    if not below:
        return path or "."
    if not path or below.startswith(("/", "~")):
        return below
    return f"{path.rstrip('/') or '/'}/{below}"


def _scope(workspace: Workspace, path: str, call: Call) -> Scope:
    target = located(workspace, path, call)
    if not os.path.lexists(target):
        raise missing(target, show(workspace, target))
    return scope_of(target, workspace.project, workspace.our_environment())


def _hidden_note(scope: Scope, hidden: list[str], cut: bool) -> str:
    example = Path(hidden[0])
    named = scope.folder / (example.parent if len(example.parts) > 1 else example)
    count = f"{'at least ' if cut else ''}{len(hidden)}"
    return (
        f"[ignore rules hide {count} more matching file{'' if len(hidden) == 1 else 's'}, such as "
        f"{show_name(hidden[0])}; to include them: path={show_name(str(named))!r}]"
    )


def _listed(entries: list[str], offset: int, limit: int, notes: list[str], cure: str) -> str:
    """A page of entries within the character limit, and how to get what is left out."""
    shown: list[str] = []
    room = MAX_CHARACTERS - _NOTICE_ROOM
    for entry in entries[offset : offset + limit]:
        room -= len(entry) + 1
        if room < 0 and shown:
            break
        shown.append(entry[: MAX_CHARACTERS - _NOTICE_ROOM])
    end = offset + len(shown)
    if end < len(entries):
        where = f"{offset + 1} to {end}"
        notes = [f"[results {where} shown, there are more; {cure or f'for more: offset={end}'}]", *notes]
    return "\n".join([*shown, *notes])
