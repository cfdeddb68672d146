"""Where passages are kept: the interface, and its implementation in one SQLite file.

Everything is asked for one agent; no answer ever holds another agent's passages. A service for teams
(PostgreSQL with pgvector) would be a second implementation of `ArchiveStore`.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from letta_code.archive.passages import ArchiveError, Counts, Passage, Stored, Wanted, new_passage_id
from letta_code.core.ids import AgentKey
from letta_code.core.query import parse
from letta_code.core.terms import TOKENIZER, indexed
from letta_code.database import Database, Schema, open_database
from letta_code.errors import StorageError

_TABLES = Schema(
    1,
    (
        """CREATE TABLE passages (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, org TEXT NOT NULL, agent TEXT NOT NULL,
            text TEXT NOT NULL, digest TEXT NOT NULL, created_at TEXT NOT NULL, source TEXT NOT NULL,
            pointer TEXT NOT NULL, UNIQUE (org, agent, digest))""",
        "CREATE INDEX passages_by_time ON passages (org, agent, created_at)",
        """CREATE TABLE tags (
            passage INTEGER NOT NULL REFERENCES passages ON DELETE CASCADE, place INTEGER NOT NULL,
            tag TEXT NOT NULL, PRIMARY KEY (passage, tag)) WITHOUT ROWID""",
        """CREATE TABLE vectors (
            passage INTEGER PRIMARY KEY REFERENCES passages ON DELETE CASCADE, model TEXT NOT NULL,
            vector BLOB NOT NULL)""",
        f"CREATE VIRTUAL TABLE words USING fts5(text, tokenize = '{TOKENIZER}')",
    ),
)
_COLUMNS = "p.number, p.id, p.text, p.created_at, p.source, p.pointer"
_OURS = "p.org = ? AND p.agent = ?"


class ArchiveStore(Protocol):
    """Passages of all agents. Every method raises `StorageError` when the place cannot be used."""

    def insert(self, key: AgentKey, passages: Sequence[Passage]) -> list[Stored]:
        """Keep all of `passages` or none; one whose text is there already adds its tags to that."""

    def get(self, key: AgentKey, passage_id: str) -> Passage:
        """The passage of this id, or of the one id that begins so. Raises `ArchiveError`."""

    def newest(self, key: AgentKey, wanted: Wanted, limit: int | None = None) -> list[Passage]:
        """The newest passages, the newest first."""

    def by_words(self, key: AgentKey, query: str, wanted: Wanted, limit: int) -> list[Passage]:
        """Passages with words of `query`, the best first."""

    def by_meaning(
        self, key: AgentKey, model: str, vector: bytes, wanted: Wanted, limit: int
    ) -> list[Passage]:
        """The passages whose vectors of `model` are nearest to `vector`, the nearest first."""

    def without_vector(
        self, key: AgentKey, model: str, length: int = 0, limit: int | None = None
    ) -> list[Passage]:
        """The newest passages that have no vector of `model` yet, or none of `length` bytes (0: any)."""

    def add_vectors(self, key: AgentKey, model: str, vectors: Mapping[str, bytes]) -> None:
        """Keep the vectors of passages (by id), instead of those of another model."""

    def delete(self, key: AgentKey, passage_id: str) -> None:
        """Delete the passage of exactly this id, if it is there."""

    def delete_all(self, key: AgentKey) -> int:
        """Delete an agent's passages; returns how many there were."""

    def counts(self, key: AgentKey) -> Counts:
        """How many passages and which tags there are."""


class SqliteArchive:
    """Passages in the SQLite file at `path`, which the first insertion makes. It is open only while something
    is done, so that any thread and any process may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def insert(self, key: AgentKey, passages: Sequence[Passage]) -> list[Stored]:
        """Keep all of `passages` or none."""
        with self._opened() as database, database.writing():
            return [_insert(database, key, passage) for passage in passages]

    def get(self, key: AgentKey, passage_id: str) -> Passage:
        """The passage of this id, or of the one id that begins so."""
        start = passage_id if passage_id.startswith("passage-") else f"passage-{passage_id}"
        found: list[Passage] = []
        if self._path.exists():
            with self._opened() as database:
                where = f"{_OURS} AND substr(p.id, 1, ?) = ?"
                found = _passages(database, where, (key.org, key.agent, len(start), start), "p.id", 2)
        if len(found) == 1 and passage_id:
            return found[0]
        raise ArchiveError(
            f"several passages begin with {start}" if found else f"there is no passage {start}",
            "letta archive list shows them",
        )

    def newest(self, key: AgentKey, wanted: Wanted, limit: int | None = None) -> list[Passage]:
        """The newest passages."""
        if not self._path.exists():
            return []
        with self._opened() as database:
            where, values = _narrowed(key, wanted)
            return _passages(database, where, values, "p.created_at DESC, p.number DESC", limit)

    def by_words(self, key: AgentKey, query: str, wanted: Wanted, limit: int) -> list[Passage]:
        """Passages with words of `query`."""
        match = parse(query).any_of
        if not match or not self._path.exists():
            return []
        with self._opened() as database:
            where, values = _narrowed(key, wanted)
            where = f"words MATCH ? AND {where}"
            source = "words JOIN passages p ON p.number = words.rowid"
            return _passages(database, where, (match, *values), "bm25(words), p.number DESC", limit, source)

    def by_meaning(
        self, key: AgentKey, model: str, vector: bytes, wanted: Wanted, limit: int
    ) -> list[Passage]:
        """The passages whose vectors are nearest."""
        if not self._path.exists():
            return []
        with self._opened() as database:
            _learn_distances(database)
            where, values = _narrowed(key, wanted)
            where = f"v.model = ? AND length(v.vector) = ? AND {where}"
            source = "vectors v JOIN passages p ON p.number = v.passage"
            order = "vec_distance_cosine(v.vector, ?)"
            given = (model, len(vector), *values, vector)
            return _passages(database, where, given, order, limit, source)

    def without_vector(
        self, key: AgentKey, model: str, length: int = 0, limit: int | None = None
    ) -> list[Passage]:
        """Passages that have no vector of `model` yet."""
        if not self._path.exists():
            return []
        with self._opened() as database:
            fitting = "SELECT passage FROM vectors WHERE model = ? AND ? IN (0, length(vector))"
            where = f"{_OURS} AND p.number NOT IN ({fitting})"
            values = (key.org, key.agent, model, length)
            return _passages(database, where, values, "p.number DESC", limit)

    def add_vectors(self, key: AgentKey, model: str, vectors: Mapping[str, bytes]) -> None:
        """Keep the vectors of passages that are still there."""
        with self._opened() as database, database.writing():
            database.run_many(
                "INSERT OR REPLACE INTO vectors (passage, model, vector) "
                f"SELECT p.number, ?, ? FROM passages p WHERE {_OURS} AND p.id = ?",
                [(model, vector, key.org, key.agent, name) for name, vector in vectors.items()],
            )

    def delete(self, key: AgentKey, passage_id: str) -> None:
        """Delete one passage."""
        self._delete(f"{_OURS} AND p.id = ?", (key.org, key.agent, passage_id))

    def delete_all(self, key: AgentKey) -> int:
        """Delete an agent's passages."""
        return self._delete(_OURS, (key.org, key.agent))

    def _delete(self, where: str, values: Sequence[Any]) -> int:
        if not self._path.exists():
            return 0
        with self._opened() as database, database.writing():
            chosen = f"(SELECT p.number FROM passages p WHERE {where})"
            database.run(f"DELETE FROM words WHERE rowid IN {chosen}", values)
            return database.run(f"DELETE FROM passages WHERE number IN {chosen}", values)

    def counts(self, key: AgentKey) -> Counts:
        """How many passages and which tags there are."""
        if not self._path.exists():
            return Counts()
        ours = (key.org, key.agent)
        with self._opened() as database:
            row = database.row(f"SELECT count(*) FROM passages p WHERE {_OURS}", ours)
            tags = database.rows(
                "SELECT t.tag, count(*) AS used FROM tags t JOIN passages p ON p.number = t.passage "
                f"WHERE {_OURS} GROUP BY t.tag ORDER BY used DESC, t.tag",
                ours,
            )
        return Counts(0 if row is None else row[0], tuple((tag, used) for tag, used in tags))

    @contextmanager
    def _opened(self) -> Iterator[Database]:
        database = open_database(self._path, _TABLES)
        try:
            yield database
        finally:
            database.close()


def _insert(database: Database, key: AgentKey, passage: Passage) -> Stored:
    ours = (key.org, key.agent, passage.digest)
    row = database.row(f"SELECT {_COLUMNS} FROM passages p WHERE {_OURS} AND p.digest = ?", ours)
    if row is not None:
        before = _tags(database, row[0])
        added = tuple(tag for tag in passage.tags if tag not in before)
        _add_tags(database, row[0], len(before), added)
        return Stored(_passage(row, (*before, *added)), False, added)
    if database.row("SELECT 1 FROM passages WHERE id = ?", (passage.id,)) is not None:
        passage = replace(passage, id=new_passage_id())  # an import of what another agent has
    database.run(
        "INSERT INTO passages (id, org, agent, digest, text, created_at, source, pointer) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (passage.id, *ours, passage.text, passage.created_at, passage.source, passage.pointer),
    )
    made = database.row("SELECT number FROM passages WHERE id = ?", (passage.id,))
    assert made is not None
    database.run("INSERT INTO words (rowid, text) VALUES (?, ?)", (made[0], indexed(passage.text)))
    _add_tags(database, made[0], 0, passage.tags)
    return Stored(passage, True)


def _add_tags(database: Database, number: int, place: int, tags: Sequence[str]) -> None:
    database.run_many(
        "INSERT INTO tags (passage, place, tag) VALUES (?, ?, ?)",
        [(number, at, tag) for at, tag in enumerate(tags, place)],
    )


def _narrowed(key: AgentKey, wanted: Wanted) -> tuple[str, tuple[Any, ...]]:
    """The condition for the passages that are wanted, and its values."""
    where, values = [_OURS], [key.org, key.agent, *wanted.tags]
    if wanted.tags:
        marks = ", ".join("?" * len(wanted.tags))
        least = len(wanted.tags) if wanted.every else 1
        counted = f"SELECT count(*) FROM tags t WHERE t.passage = p.number AND t.tag IN ({marks})"
        where.append(f"({counted}) >= {least}")
    for sign, bound in ((">=", wanted.start), ("<", wanted.end)):
        if bound:
            where.append(f"p.created_at {sign} ?")
            values.append(bound)
    return " AND ".join(where), tuple(values)


def _passages(
    database: Database,
    where: str,
    values: Sequence[Any],
    order: str,
    limit: int | None,
    source: str = "passages p",
) -> list[Passage]:
    most = -1 if limit is None else limit
    rows = database.rows(
        f"SELECT {_COLUMNS} FROM {source} WHERE {where} ORDER BY {order} LIMIT ?", (*values, most)
    )
    return [_passage(row, _tags(database, row[0])) for row in rows]


def _tags(database: Database, number: int) -> tuple[str, ...]:
    rows = database.rows("SELECT tag FROM tags WHERE passage = ? ORDER BY place", (number,))
    return tuple(row[0] for row in rows)


def _passage(row: Sequence[Any], tags: tuple[str, ...]) -> Passage:
    _, name, text, created_at, source, pointer = row
    return Passage(name, text, tags, created_at, source, pointer)


def _learn_distances(database: Database) -> None:
    """Let statements call `vec_distance_cosine`: that of sqlite-vec, or where this Python or this place does
    not have it, our own, which is slower and gives the same."""
    if find_spec("sqlite_vec") is not None:
        from sqlite_vec import loadable_path

        try:
            database.load_extension(loadable_path())
            return
        except StorageError:
            pass  # this Python's SQLite loads none
    database.define("vec_distance_cosine", _distance, 2)


def _distance(one: bytes, other: bytes) -> float:
    """The cosine distance of two vectors of unit length."""
    return 1.0 - float(sum(map(operator.mul, array("f", one), array("f", other))))
