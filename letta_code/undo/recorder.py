"""What the tools tell before they change something, so that it can be taken back.

File tools call `before_write` with the bytes they are about to replace. For a shell command the project is
looked at before and after: what differs is recorded as the command's doing, though a person may have done
it at the same time; undo lists it apart for that reason.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from letta_code.errors import StorageError
from letta_code.undo.copies import Found, ProjectCopies, key_of, latest, survey
from letta_code.undo.disk import held, missing_folders
from letta_code.undo.states import ABSENT, COMMAND, Change, State
from letta_code.undo.store import KEPT, UndoStore

MOST_CHANGES = 5_000
"""Changes of one command that are recorded."""


@dataclass(frozen=True, slots=True)
class Running:
    """A command that is about to run, and the project before it."""

    id: str
    turn: int
    command: str
    before: Found


class Recorder:
    """Keeps what the tools of one conversation are about to change. `copies` is the folder for copies of
    the project."""

    def __init__(self, store: UndoStore, project: Path, copies: Path) -> None:
        self._store = store
        self._project = project
        self._copies = ProjectCopies(copies, project)

    def before_write(self, turn: int, tool: str, path: Path, before: bytes | None, after: bytes) -> None:
        """`tool` is about to make `after` the content of `path` (resolved), which holds `before`.

        Raises:
            StorageError: it could not be kept; the file must not be changed.
        """
        old = ABSENT if before is None else self._kept(before, path, self._own(turn, str(path)))
        new = State("file", _digest(after), old.mode, len(after))
        self._store.add_changes([Change(0, turn, tool, str(path), old, new, missing_folders(path))])

    def _own(self, turn: int, path: str) -> State | None:
        """What a file tool made of `path` earlier in this turn, when nothing else changed it since."""
        found = (change for change in reversed(self._store.log.changes) if change.path == path)
        last = next(found, None)
        own = last is not None and last.turn == turn and not last.operation and not last.by_command
        return last.after if last is not None and own else None

    def _kept(self, raw: bytes, path: Path, own: State | None) -> State:
        """The state of a file with `raw`, kept unless it is too large or an undo never needs it."""
        mode, links = _status(path)
        state = State("file", _digest(raw), mode, len(raw), shared=links > 1)
        if own is not None and own.same(state):
            return state  # the agent's own text, in the middle of a turn
        if len(raw) > KEPT:
            return replace(state, problem=f"larger than {KEPT // 1_000_000} MB")
        self._store.keep(raw)
        return state

    # Commands -------------------------------------------------------------------------------------

    def before_command(self, turn: int, command: str, listing: Iterable[str]) -> Running | None:
        """`command` is about to run in the project, whose files `listing` names (relative, without those
        that Git ignores). None: the project could not be copied, and the journal says so.

        Raises:
            StorageError: the journal cannot be written.
        """
        try:
            found = survey(self._project, listing)
            mark = self._copies.update(found)
        except (OSError, StorageError) as error:
            words = error.message if isinstance(error, StorageError) else str(error.strerror)
            self.uncovered(turn, command, f"the project could not be copied: {words}")
            return None
        place = {"generation": mark.generation, "length": mark.length}
        record = self._command(turn, command)
        self._store.append(record | {"mark": place})
        return Running(str(record["run"]), turn, command, found)

    def uncovered(self, turn: int, command: str, why: str) -> None:
        """`command` is about to run, and what it changes cannot be taken back.

        Raises:
            StorageError: the journal cannot be written.
        """
        self._store.append(self._command(turn, command) | {"mark": None, "note": why})

    def _command(self, turn: int, command: str) -> dict[str, object]:
        record = {"kind": "command", "turn": turn, "run": secrets.token_hex(6), "command": command}
        return record | {"project": str(self._project)}

    def after_command(self, running: Running, listing: Iterable[str]) -> None:
        """The command has ended: record what is different.

        Raises:
            StorageError: it could not be recorded; undo then takes every difference for a doubtful one.
        """
        after = survey(self._project, listing)
        changes = [*self._changed(running, after), *self._links(running, after)]
        changes += self._appeared(running, after)
        note = ""
        if len(changes) > MOST_CHANGES:
            note = f"it changed {len(changes):,} files; the first {MOST_CHANGES:,} are recorded"
        self._store.add_changes(changes[:MOST_CHANGES])
        self._store.append({"kind": "ran", "run": running.id, "note": note})

    def _changed(self, running: Running, after: Found) -> list[Change]:
        """Files that were there before and are different or gone."""
        changes = []
        for path, key in running.before.files.items():
            copy = self._copies.before(path)
            now = after.files.get(path) or self._key(path)
            young = copy is not None and copy.young
            if now == key and not young:
                continue
            state = ABSENT if now is None else held(str(self._project / path))
            if copy is None or copy.key != key:
                before = State("file", mode=stat.S_IMODE(key[4]), size=key[0], problem="it was being written")
            else:
                before = copy.state
            if state.same(before) and state.mode == before.mode:
                continue
            if copy is not None and not before.problem:
                raw = self._copies.content(copy)
                if raw is None:
                    before = State("file", mode=before.mode, size=before.size, problem="its copy is gone")
                else:
                    self._store.keep(raw, durable=False)
            changes.append(self._change(running, path, before, state))
            if len(changes) > MOST_CHANGES:
                break
        return changes

    def _key(self, path: str) -> tuple[int, int, int, int, int] | None:
        """The key of a file that is not listed any more: gone, or ignored now."""
        try:
            return key_of(os.lstat(self._project / path))
        except OSError:
            return None

    def _links(self, running: Running, after: Found) -> list[Change]:
        """Symlinks that were there before and are different or gone."""
        changes = []
        for path, target in running.before.links.items():
            if after.links.get(path) == target:
                continue
            now = held(str(self._project / path))
            before = State("link", target=target)
            if not now.same(before):
                changes.append(self._change(running, path, before, now))
        return changes

    def _appeared(self, running: Running, after: Found) -> list[Change]:
        """Files and symlinks that the command made or moved to where they are."""
        changes = []
        known = running.before
        moved = set(known.files.values())
        for path in (*after.files, *after.links):
            if known.held(path):
                continue
            key = after.files.get(path)
            if key is not None and key not in moved and latest(key[2]) < known.at:
                continue  # older than the command: it came with a folder from where nothing was looked at
            state = held(str(self._project / path))
            if state == ABSENT:
                continue
            changes.append(self._change(running, path, ABSENT, state, self._made(path, known)))
            if len(changes) > MOST_CHANGES:
                break
        return changes

    def _made(self, path: str, known: Found) -> tuple[str, ...]:
        """The folders of `path` that were not there before, outermost first."""
        parents = [str(parent) for parent in Path(path).parents if str(parent) != "."]
        made: list[str] = []
        for parent in reversed(parents):
            above = os.path.dirname(parent)
            if parent not in known.folders and (above in known.folders or made):
                made.append(str(self._project / parent))
        return tuple(made)

    def _change(
        self, running: Running, path: str, before: State, after: State, folders: tuple[str, ...] = ()
    ) -> Change:
        whole, command = str(self._project / path), running.command
        return Change(0, running.turn, COMMAND, whole, before, after, folders, command=command)


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _status(path: Path) -> tuple[int, int]:
    """Permission bits of a file, and how many names it has."""
    try:
        status = path.stat()
    except OSError:
        return 0o644, 1  # it vanished just now, and will not be written either
    return stat.S_IMODE(status.st_mode), status.st_nlink
