"""A conversation's undo folder: kept contents by their hash, and an append-only journal of changes.

::

    journal.jsonl       change        what a tool, a command or an undo is about to do to a path
                        command       turn, run, command, project, mark: a shell command is about to run
                        ran           run, note: it ended, and what it changed is recorded
                        undo          operation, turns, of: an undo begins, or the redo `of` one
                        undone        operation, handled: it is over; the numbers of the changes it took back
    objects/<sha256>    contents

A record is on the disk before what it announces happens. Whoever writes holds the conversation's lock.
Damaged lines are passed over.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from letta_code.errors import StorageError
from letta_code.storage import private_folder, write_atomically
from letta_code.undo.states import Change, State, dump_change, load_change

KEPT = 20_000_000
"""Bytes of the largest content that is kept."""

KEPT_IN_ALL = 200_000_000
"""Bytes of contents that a conversation keeps."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the project's copies (`undo.copies`): their generation and the length of their index."""

    generation: str
    length: int


@dataclass(slots=True)
class Command:
    """A shell command that was about to run. `number` is its place in the journal; `mark` is None when the
    project was not copied before, and `note` says why."""

    number: int
    id: str
    turn: int
    command: str
    project: str
    mark: Mark | None
    note: str = ""
    ended: bool = False


@dataclass(slots=True)
class Operation:
    """An undo (or, with `of`, the redo of one). `handled` are the numbers of the changes it took back (or
    brought back). One that is not `finished` was broken off."""

    id: str
    turns: tuple[int, ...]
    of: str = ""
    handled: frozenset[int] = frozenset()
    finished: bool = False


@dataclass(slots=True)
class Log:
    """What a journal says. `undone` are the numbers of changes that are taken back at present;
    `operations` the undos that a redo could bring back, in order."""

    changes: list[Change] = field(default_factory=list)
    commands: dict[str, Command] = field(default_factory=dict)
    undone: set[int] = field(default_factory=set)
    operations: list[Operation] = field(default_factory=list)
    begun: dict[str, Operation] = field(default_factory=dict)
    count: int = 0

    def take(self, record: Mapping[str, Any]) -> None:
        """Take the next record; one that makes no sense counts and says nothing."""
        self.count += 1
        try:
            self._take(record)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass

    def _take(self, record: Mapping[str, Any]) -> None:
        match record["kind"]:
            case "change":
                self.changes.append(load_change(record, self.count))
            case "command":
                mark = record["mark"]
                command = Command(
                    self.count,
                    str(record["run"]),
                    int(record["turn"]),
                    str(record["command"]),
                    str(record["project"]),
                    None if mark is None else Mark(str(mark["generation"]), int(mark["length"])),
                    str(record.get("note", "")),
                )
                self.commands[command.id] = command
            case "ran":
                command = self.commands[record["run"]]
                command.ended = True
                command.note = command.note or str(record.get("note", ""))
            case "undo":
                turns = tuple(map(int, record["turns"]))
                operation = Operation(str(record["operation"]), turns, str(record.get("of", "")))
                self.begun[operation.id] = operation
                if not operation.of:
                    self.operations.append(operation)
            case "undone":
                self._finish(self.begun[record["operation"]], frozenset(map(int, record["handled"])))
            case _:
                pass

    def _finish(self, operation: Operation, handled: frozenset[int]) -> None:
        operation.handled = handled
        operation.finished = True
        if not operation.of:
            self.undone |= handled
            if not handled:
                self.operations.remove(operation)
            return
        self.undone -= handled
        before = self.begun[operation.of]
        before.handled -= handled
        if not before.handled:
            for item in self.with_broken_off(before):
                self.operations.remove(item)

    def with_broken_off(self, operation: Operation) -> list[Operation]:
        """The undo, and those right before it that were broken off and that it therefore finished."""
        start = self.operations.index(operation)
        while start and not self.operations[start - 1].finished:
            start -= 1
        return self.operations[start : self.operations.index(operation) + 1]


class UndoStore:
    """The undo folder of one conversation; made when something is first kept. `room` is how many bytes of
    contents it keeps; beyond, the oldest go."""

    def __init__(self, folder: Path, room: int = KEPT_IN_ALL) -> None:
        self.folder = folder
        self._room = room
        self._log: Log | None = None
        self._length = 0
        self._size: int | None = None
        self._held: set[str] = set()

    @property
    def log(self) -> Log:
        """The journal so far.

        Raises:
            StorageError: it cannot be read.
        """
        if self._log is None or self._length != self._size_of_journal():
            self._log = Log()
            self._length = self._size_of_journal()
            for record in self._records():
                self._log.take(record)
        return self._log

    def _size_of_journal(self) -> int:
        try:
            return self._journal.stat().st_size
        except OSError:
            return 0

    def _records(self) -> Iterable[Mapping[str, Any]]:
        try:
            data = self._journal.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot read {self._journal}: {error.strerror}") from error
        for line in data.split(b"\n"):
            try:
                record = from_json(line.strip(b"\0")) if line else None
            except ValueError:
                record = _loose(line)
            if isinstance(record, dict):
                yield record

    @property
    def _journal(self) -> Path:
        return self.folder / "journal.jsonl"

    def append(self, *records: Mapping[str, Any]) -> None:
        """Add records; they are on the disk when this returns.

        Raises:
            StorageError: they are not.
        """
        log = self.log
        lines = b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)
        private_folder(self.folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(self._journal, flags, 0o600), "r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
                _write(file.fileno(), b"\n" + lines if torn else lines, size)
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"cannot write {self._journal}: {error.strerror}", "free some space and try again"
            ) from error
        for record in records:
            log.take(record)
        self._held.clear()
        self._length = self._size_of_journal()

    def add_changes(self, changes: Iterable[Change]) -> None:
        """Announce changes. Their numbers are given by the journal."""
        if records := [dump_change(change) for change in changes]:
            self.append(*records)

    # Contents -------------------------------------------------------------------------------------

    def keep(self, raw: bytes, *, durable: bool = True) -> None:
        """Keep a content.

        Raises:
            StorageError: it cannot be written.
        """
        digest = hashlib.sha256(raw).hexdigest()
        self._held.add(digest)
        path = self._object(digest)
        if not path.exists():
            self._make_room(len(raw))
            write_atomically(path, raw, durable=durable)
            self._size = self._total() + len(raw)

    def hold(self, states: Iterable[State]) -> None:
        """Let these states' contents stay until the next records are written, whatever room there is. (What
        is kept stays that long anyway: the records say what it is for.)"""
        self._held.update(state.sha256 for state in states)

    def content(self, state: State) -> bytes | None:
        """The content of a file's state, or None when it is not kept (any more)."""
        if not state.sha256:
            return None
        try:
            raw = self._object(state.sha256).read_bytes()
        except OSError:
            return None
        return raw if hashlib.sha256(raw).hexdigest() == state.sha256 else None

    def _object(self, digest: str) -> Path:
        return self.folder / "objects" / digest

    def _total(self) -> int:
        if self._size is None:
            self._size = sum(self._sizes().values())
        return self._size

    def _sizes(self) -> dict[str, int]:
        try:
            with os.scandir(self.folder / "objects") as entries:
                return {entry.name: entry.stat().st_size for entry in entries}
        except FileNotFoundError:
            return {}

    def _make_room(self, size: int) -> None:
        """Let the contents of the oldest changes go until `size` more bytes have room; first what a program
        that died left."""
        if self._total() + size <= self._room:
            return
        needed = {
            state.sha256: change.number  # the latest
            for change in self.log.changes
            for state in (change.before, change.after)
        }
        sizes = self._sizes()
        for name in sorted(sizes.keys() - self._held, key=lambda name: needed.get(name, 0)):
            try:
                self._object(name).unlink()
            except OSError:
                continue
            self._size = self._total() - sizes[name]
            if self._size + size <= self._room:
                return


def _loose(line: bytes) -> Any:
    """What the strict parser refuses: lone surrogates, which stand for bytes of file names."""
    try:
        return json.loads(line.strip(b"\0"))
    except (ValueError, RecursionError):
        return None


def _write(handle: int, data: bytes, size: int) -> None:
    """All of `data` or nothing of it."""
    written = 0
    try:
        while written < len(data):
            written += os.write(handle, data[written:])
    except OSError:
        os.ftruncate(handle, size)
        raise
