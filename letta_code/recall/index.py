"""The index of all stored messages: made from the transcripts, and brought up to date from them.

It holds words and places, no texts. For each transcript it knows up to which byte it was read and what
stood there, so that new pieces are added, and a transcript that was cut or replaced is read anew. What a
transaction adds and how far it read are one: a crash loses nothing and doubles nothing.

A message's number is that of its conversation and its place in it, so that numbers grow with time and the
messages of a conversation are neighbours. Numbers are never used twice: words of messages that left stay in
the full-text table, where nothing leads to them, until the index is rebuilt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, NamedTuple

from letta_code.conversations.history import Entry
from letta_code.conversations.transcript import parse_line
from letta_code.core.ids import AgentKey
from letta_code.core.messages import Message
from letta_code.core.terms import TOKENIZER, indexed
from letta_code.database import Database, Row, Schema
from letta_code.errors import UsageError
from letta_code.paths import Paths
from letta_code.recall.reading import Left, Messages, pieces
from letta_code.recall.words import COLUMNS, findable

SPAN = 1 << 24
"""Numbers that one conversation has for its messages."""
SHOWN = ("user", "assistant", "tool")
"""Roles by their number in the table; a memory update has the one behind."""

SCHEMA = Schema(
    2,
    (
        """CREATE TABLE conversation (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            org TEXT NOT NULL, agent TEXT NOT NULL, id TEXT NOT NULL,
            size INTEGER NOT NULL, changed INTEGER NOT NULL, inode INTEGER NOT NULL,
            read INTEGER NOT NULL, mark BLOB NOT NULL, next INTEGER NOT NULL,
            first INTEGER NOT NULL, last INTEGER NOT NULL, UNIQUE (org, agent, id))""",
        """CREATE TABLE message (
            id INTEGER PRIMARY KEY, at INTEGER NOT NULL, key INTEGER NOT NULL, start INTEGER NOT NULL,
            length INTEGER NOT NULL, part INTEGER NOT NULL, turn INTEGER NOT NULL, role INTEGER NOT NULL)""",
        f"""CREATE VIRTUAL TABLE words USING fts5(
            {", ".join(COLUMNS)}, content='', tokenize='{TOKENIZER}')""",
        "INSERT INTO words (words, rank) VALUES ('hashsize', 16777216)",
    ),
    derived=True,
)
_ENDING = ".jsonl"
_TRANSCRIPT = re.compile(r"conv-[a-z0-9-]{1,75}\.jsonl")
_MARK = 256  # bytes at the beginning and before the end of what was read
_NEVER = 1 << 62
_BATCH = 3_000  # messages that one transaction adds


@dataclass(frozen=True, slots=True)
class Status:
    """What the index holds. `left` messages are no longer part of a conversation; `behind` transcripts
    changed since they were read."""

    conversations: int
    messages: int
    left: int
    behind: int
    bytes: int


class _File(NamedTuple):
    """A transcript to be read."""

    key: AgentKey
    id: str
    path: str


@dataclass(slots=True)
class _Batch:
    """What a transaction adds."""

    words: list[tuple[int | str, ...]] = field(default_factory=list)
    messages: list[tuple[int, ...]] = field(default_factory=list)
    count: int = 0


def update(
    database: Database,
    paths: Paths,
    key: AgentKey | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Add what the transcripts (of one agent, or of all) have that the index has not; returns how many
    messages that were. `progress` is told their number now and then.

    Raises:
        StorageError: the index cannot be read or written.
    """
    waiting = _stale(database, paths, key)
    added = 0
    while waiting:
        with database.writing():
            batch = _Batch()
            while waiting and batch.count < _BATCH:
                if _read_some(database, waiting[-1], batch):
                    waiting.pop()
            _flush(database, batch)
        added += batch.count
        progress(added)
    return added


def status(database: Database, paths: Paths) -> Status:
    """What the index holds."""
    conversations = database.rows("SELECT count(*) FROM conversation")[0][0]
    messages = database.rows("SELECT count(*) FROM message")[0][0]
    kept = database.rows("SELECT count(*) FROM words_docsize")[0][0]
    size = sum(
        file.stat().st_size for end in ("", "-wal") if (file := Path(f"{database.path}{end}")).exists()
    )
    return Status(conversations, messages, max(0, kept - messages), len(_stale(database, paths, None)), size)


def key_of(message_id: str) -> int:
    """A number for a message's id, the same in all copies of its conversation."""
    return int.from_bytes(blake2b(message_id.encode(), digest_size=8).digest(), signed=True)


def milliseconds(at: str) -> int:
    """A transcript's time as a number; 0 when it cannot be read."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _stale(database: Database, paths: Paths, key: AgentKey | None) -> list[_File]:
    """The transcripts that are not as they were when they were read: the ones known longest last, then
    from the newest to the oldest. What the index knows of those that are gone is deleted."""
    stale: list[tuple[bool, str, int, _File]] = []
    gone: list[int] = []
    owners = _owners(paths) if key is None else [key]
    for owner in owners:
        rows = database.rows(
            "SELECT id, size, changed, inode, number FROM conversation WHERE org = ? AND agent = ?",
            (owner.org, owner.agent),
        )
        known = {row[0] + _ENDING: row for row in rows}
        for file, number in _changed(paths, owner, known):
            stale.append((number == 0, _created(file.path) if number == 0 else "", number, file))
        gone += [row[4] for row in known.values()]
    if key is None:
        present = {(owner.org, owner.agent) for owner in owners}
        found = database.rows("SELECT number, org, agent FROM conversation")
        gone += [number for number, org, agent in found if (org, agent) not in present]
    if gone:
        with database.writing():
            for number in gone:
                _forget(database, number)
    return [file for *_, file in sorted(stale, key=lambda item: item[:3], reverse=True)]


def _owners(paths: Paths) -> list[AgentKey]:
    owners = []
    for folder in paths.all_conversations().glob("org-*/agent-*"):
        try:
            owners.append(AgentKey(folder.parent.name, folder.name))
        except UsageError:  # no folder of ours
            continue
    return owners


def _changed(paths: Paths, owner: AgentKey, known: dict[str, Row]) -> Iterator[tuple[_File, int]]:
    """An agent's transcripts that are not as they were, with their number (0 for a new one). Those that are
    there are taken out of `known`. This is done before each search: one `stat` for each, little else."""
    try:
        found = os.scandir(paths.conversations(owner))
    except (FileNotFoundError, NotADirectoryError):
        return
    with found:
        for item in found:
            name = item.name
            if not name.endswith(_ENDING):
                continue
            try:
                status = item.stat()
            except OSError:  # deleted at this moment
                continue
            row = known.pop(name, None)
            if row is not None:
                if (status.st_size, status.st_mtime_ns, status.st_ino) != row[1:4]:
                    yield _File(owner, row[0], item.path), row[4]
            elif _TRANSCRIPT.fullmatch(name):
                yield _File(owner, name.removesuffix(_ENDING), item.path), 0


def _created(path: str) -> str:
    try:
        with open(path, "rb") as file:
            record = parse_line(file.readline(65_536))
    except OSError:
        return ""
    return str((record or {}).get("created_at", ""))


def _read_some(database: Database, file: _File, batch: _Batch) -> bool:
    """Add pieces of a transcript until the batch is full; returns whether it is read to its end."""
    try:
        with Path(file.path).open("rb") as stream:
            return _read_on(database, file, stream, batch)
    except OSError:  # gone by now, or closed to us
        return True


def _read_on(database: Database, file: _File, stream: BinaryIO, batch: _Batch) -> bool:
    status = os.fstat(stream.fileno())
    number, read, following = _place(database, file, stream)
    end, first, last = True, _NEVER, -_NEVER
    for piece in pieces(stream, read):
        read = piece.end
        if isinstance(piece, Left):
            _flush(database, batch)
            _leave(database, number, piece)
        else:
            following = _add(batch, number, following, piece)
            for entry in piece.entries:
                at = milliseconds(entry.at)
                first, last = min(first, at), max(last, at)
        if batch.count >= _BATCH:
            end = False
            break
    database.run(
        """UPDATE conversation SET size = ?, changed = ?, inode = ?, read = ?, mark = ?, next = ?,
           first = min(first, ?), last = max(last, ?) WHERE number = ?""",
        (
            *((status.st_size, status.st_mtime_ns, status.st_ino) if end else (0, 0, 0)),
            read,
            _mark(stream, read),
            following,
            first,
            last,
            number,
        ),
    )
    return end


def _place(database: Database, file: _File, stream: BinaryIO) -> tuple[int, int, int]:
    """The conversation's number, how far its transcript was read, and its next message's place."""
    owner = (file.key.org, file.key.agent, file.id)
    known = database.row(
        "SELECT number, read, mark, next FROM conversation WHERE org = ? AND agent = ? AND id = ?", owner
    )
    if known is not None:
        number, read, mark, following = known
        if mark == _mark(stream, read):
            return number, read, following
        _forget(database, number)  # it was cut or replaced
    database.run(
        f"INSERT INTO conversation VALUES (NULL, ?, ?, ?, 0, 0, 0, 0, x'', 0, {_NEVER}, {-_NEVER})", owner
    )
    return database.rows("SELECT last_insert_rowid()")[0][0], 0, 0


def _mark(stream: BinaryIO, read: int) -> bytes:
    """What the transcript holds at its beginning and where reading ended."""
    stream.seek(0)
    head = stream.read(min(_MARK, read))
    stream.seek(max(0, read - _MARK))
    tail = stream.read(min(_MARK, read))
    return blake2b(head + tail, digest_size=16).digest()


def _add(batch: _Batch, number: int, following: int, piece: Messages) -> int:
    tools = {call.id: call.name for entry in piece.entries for call in entry.message.tool_calls}
    for part, entry in enumerate(piece.entries):
        id = number * SPAN + following
        following += 1
        role = _role(entry.message)
        batch.messages.append(_row(id, entry, piece, part, role))
        texts = findable(entry.message, tools)
        if texts:
            batch.words.append(
                (id, *(indexed(texts[column]) if column in texts else "" for column in COLUMNS))
            )
        batch.count += 1
    return following


def _row(id: int, entry: Entry, piece: Messages, part: int, role: int) -> tuple[int, ...]:
    length = piece.end - piece.start
    return id, milliseconds(entry.at), key_of(entry.id), piece.start, length, part, entry.turn, role


def _role(message: Message) -> int:
    return SHOWN.index(message.role) if message.role in SHOWN else len(SHOWN)


def _flush(database: Database, batch: _Batch) -> None:
    columns = ", ".join(COLUMNS)
    database.run_many(f"INSERT INTO words (rowid, {columns}) VALUES (?, ?, ?, ?, ?)", batch.words)
    database.run_many("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)", batch.messages)
    batch.words.clear()
    batch.messages.clear()


def _leave(database: Database, number: int, piece: Left) -> None:
    whole = (number * SPAN, (number + 1) * SPAN - 1)
    for turn in piece.turns:
        if piece.unanswered:
            last = "SELECT max(id) FROM message WHERE id BETWEEN ? AND ?"
            database.run(f"DELETE FROM message WHERE id = ({last}) AND turn = ? AND role = 0", (*whole, turn))
        else:
            database.run("DELETE FROM message WHERE id BETWEEN ? AND ? AND turn = ?", (*whole, turn))


def _forget(database: Database, number: int) -> None:
    whole = (number * SPAN, (number + 1) * SPAN - 1)
    database.run("DELETE FROM message WHERE id BETWEEN ? AND ?", whole)
    database.run("DELETE FROM conversation WHERE number = ?", (number,))
