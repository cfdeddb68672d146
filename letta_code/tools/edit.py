"""Edit and MultiEdit: replace exact text in a file, every other byte untouched.

Matching is `matching`, bytes are `encoding` and `diskfile`. An edit needs no earlier Read, since its
old text must be unique; when the file changed after a Read, an edit that is still unique is applied
and says so.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from letta_code.core.tooling import DiffDisplay, Display, ToolKind, ToolOutput
from letta_code.errors import ToolError
from letta_code.tools.base import Access, Arguments, Call, Remembered, Tool, Workspace
from letta_code.tools.diskfile import diff_display, load, locate, located, missing, save, show
from letta_code.tools.encoding import TextFile, decode, printable
from letta_code.tools.matching import Replaced, View, numbered, replace
from letta_code.tools.seen import SeenFiles

_CONTEXT = 3  # numbered lines shown before and after a change


class Replacement(Arguments):
    """One replacement."""

    old_string: str
    new_string: str
    replace_all: bool = False


class EditArguments(Arguments):
    """One replacement in one file."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class MultiEditArguments(Arguments):
    """Several replacements in one file."""

    file_path: str
    edits: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an edit would do: everything that is known before the file is written."""

    path: Path
    name: str
    before: bytes | None
    after: bytes
    display: DiffDisplay
    report: str


EditsT = TypeVar("EditsT", EditArguments, MultiEditArguments)


class _Editing(Tool[EditsT], Generic[EditsT]):
    """What Edit and MultiEdit share: they differ only in how many replacements they carry."""

    kind: ClassVar[ToolKind] = "edit"

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen

    @abstractmethod
    def replacements(self, arguments: EditsT) -> Sequence[Replacement]:
        """The replacements, in order."""

    def accesses(self, arguments: EditsT) -> tuple[Access, ...]:
        """The file."""
        return (Access("write", str(self._workspace.absolute(arguments.file_path))),)

    def remembers(self, arguments: EditsT) -> Remembered | None:
        """The new strings, when the file lies in memory's work tree."""
        if not self._workspace.is_memory(arguments.file_path):
            return None
        edits = self.replacements(arguments)
        return Remembered(
            "\n".join(edit.new_string for edit in edits), "\n".join(edit.old_string for edit in edits)
        )

    def title(self, arguments: EditsT) -> str:
        """One line for people."""
        return f"Edit {show(self._workspace, self._workspace.absolute(arguments.file_path))}"

    def preview(self, arguments: EditsT) -> tuple[Display, ...]:
        """The change it would make."""
        try:
            return (self._plan(arguments, locate(self._workspace, arguments.file_path)).display,)
        except ToolError:
            return ()

    async def run(self, arguments: EditsT, call: Call) -> ToolOutput:
        """Apply all replacements, or none."""
        plan = self._plan(arguments, located(self._workspace, arguments.file_path, call))
        known = plan.before is None or self._seen.state(plan.path, plan.before) == "same"
        if (undo := self._workspace.undo) is not None:
            undo.before_write(call, self.name, plan.path, plan.before, plan.after)
        note = save(plan.path, plan.after, plan.name, plan.before, shared=call.consented)
        if known:
            self._seen.record(plan.path, plan.after)
        return ToolOutput.of(plan.report + note, plan.display)

    def _plan(self, arguments: EditsT, path: Path) -> _Plan:
        name = show(self._workspace, path)
        edits = self.replacements(arguments)
        if not edits:
            raise ToolError("edits is empty: nothing to change")
        before = load(path, name)
        if not before and not edits[0].old_string:
            start, edits = edits[0].new_string, edits[1:]
            file = TextFile(start)
            file.check(start)
        elif before is None:
            raise missing(path, name)
        else:
            try:
                file = decode(before)
            except ToolError as error:
                raise ToolError(f"{name} cannot be edited: {error}") from error
        changed = before is not None and self._seen.state(path, before) == "changed"
        text, done = _apply(file, edits, name, changed)
        after = file.encode(text)
        if after == before:
            raise ToolError(f"the edits leave {name} as it is: nothing was changed")
        display = diff_display(name, None if before is None else decode(before).text, text)
        created = before is None
        return _Plan(path, name, before, after, display, _report(name, text, done, created, changed))


def _apply(
    file: TextFile, edits: Sequence[Replacement], name: str, changed: bool
) -> tuple[str, list[Replaced]]:
    """The text after all edits, each applied to the outcome of those before it."""
    text, done = file.text, []
    for number, edit in enumerate(edits, 1):
        try:
            replaced = _one(file, text, edit, changed)
        except ToolError as error:
            which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            news = f" ({name} changed on disk since it was read: Read it again.)" if changed else ""
            raise ToolError(f"{name}: {which}{error}{news}") from error
        text = replaced.text
        done.append(replaced)
    return text, done


def _one(file: TextFile, text: str, edit: Replacement, changed: bool) -> Replaced:
    if not edit.old_string:
        raise ToolError("old_string is empty but the file is not: give the text to replace, or use Write")
    replaced = replace(text, edit.old_string, edit.new_string, everywhere=edit.replace_all)
    if changed and (len(replaced.lines) > 1 or replaced.lenient):
        raise ToolError("old_string is not exactly one place; nothing was changed")
    file.check(replaced.added)
    return replaced


def _report(name: str, text: str, done: list[Replaced], created: bool, changed: bool) -> str:
    """What the model is told: what was done, and the new lines around it."""
    if created:
        return f"Created {name}."
    parts = [f"Edited {name}."]
    count = sum(len(replaced.lines) for replaced in done)
    if count > 1:
        parts[0] = f"Edited {name}: {count} replacements."
    if any(replaced.lenient for replaced in done):
        parts.append("Typographic quotes or no-break spaces were taken as equal to those in old_string.")
    if changed:
        parts.append("The file had changed on disk since it was read; old_string was still unique.")
    lines = printable(View(text).text).split("\n")
    for replaced in done[:5]:
        at = replaced.lines[0] - 1
        parts.append(numbered(lines, max(0, at - _CONTEXT), min(len(lines), at + replaced.span + _CONTEXT)))
        if len(replaced.lines) > 1:
            more = ", ".join(map(str, replaced.lines[1:20])) + (", …" if len(replaced.lines) > 20 else "")
            parts.append(f"Also at lines {more}.")
    return "\n".join(parts)


class Edit(_Editing[EditArguments]):
    """Replace one exact text in a file."""

    name: ClassVar[str] = "Edit"
    arguments = EditArguments

    def replacements(self, arguments: EditArguments) -> Sequence[Replacement]:
        """The one replacement."""
        return (
            Replacement(
                old_string=arguments.old_string,
                new_string=arguments.new_string,
                replace_all=arguments.replace_all,
            ),
        )


class MultiEdit(_Editing[MultiEditArguments]):
    """Replace several exact texts in a file, all or none."""

    name: ClassVar[str] = "MultiEdit"
    arguments = MultiEditArguments

    def replacements(self, arguments: MultiEditArguments) -> Sequence[Replacement]:
        """All of them, in order."""
        return arguments.edits
