"""Searches in the index. It gives places; the texts are read from the transcripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from letta_code.conversations.history import Entry
from letta_code.core.ids import AgentKey
from letta_code.core.query import Query
from letta_code.database import Database, Row
from letta_code.paths import Paths
from letta_code.recall.index import SHOWN, SPAN, key_of
from letta_code.recall.reading import entries_at
from letta_code.recall.snippet import Snippet, snippets
from letta_code.recall.words import COLUMNS, ROLES, Role, readable

_RANKED = 1_000
"""Of more matches than this only the last ones are ranked: all have the words, and ranking takes time."""
_COMMON = 4_000  # messages with a word that says little
_SOME = 12_000  # matches that are ranked where only some of the words are found
_WEIGHTS = "1.0, 1.0, 0.5, 0.5"  # what was said counts more than what tools were given and gave
_CLASSES = 20  # that scores fall into; in one of them time decides


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is searched: `query` in messages of these roles, of one agent or conversation, from `since` until
    `until` (milliseconds, UTC; `until` is not in it). At most `limit` hits, each with `before` and `after`
    messages around it. `running` is the conversation and the turn that asks: what is said in that turn is no
    answer."""

    query: Query
    roles: tuple[Role, ...] = ("user", "assistant", "tool")
    agent: AgentKey | None = None
    conversation: str = ""
    since: int | None = None
    until: int | None = None
    limit: int = 10
    before: int = 0
    after: int = 0
    running: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found. `whole`: it has all that was asked for, not only some of it. `around` are
    its neighbours, itself left out."""

    agent: AgentKey
    conversation: str
    entry: Entry
    snippet: Snippet
    whole: bool
    before: tuple[Entry, ...] = ()
    after: tuple[Entry, ...] = ()

    @property
    def pointer(self) -> str:
        """Where it is: `conversation:message`."""
        return f"{self.conversation}:{self.entry.id}"


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: the best hits, and how many messages have all that was asked for (`more`: at
    least so many)."""

    hits: tuple[Hit, ...]
    total: int
    more: bool


class _Match(NamedTuple):
    id: int
    key: int
    at: int
    score: float
    whole: bool = True


def search(database: Database, paths: Paths, wanted: Wanted) -> Found:
    """The messages that fit, best first: those that have all words, then those that have some. Of copies of
    one message the first is taken. A query without any word finds the newest messages.

    Raises:
        StorageError: the index cannot be read.
    """
    if not wanted.query.wanted:
        if wanted.query.text.strip():
            return Found((), 0, False)
        newest = _newest(database, wanted)
        return Found(_hits(database, paths, wanted, newest), len(newest), len(newest) == wanted.limit)
    whole = _matches(database, wanted, wanted.query.all_of, _RANKED)
    ranked = _ranked(whole)
    total = len(ranked)
    if total < wanted.limit and (len(wanted.query.wanted) > 1 or wanted.query.pieces):
        ranked += _some(database, wanted, {match.key for match in ranked})
    hits = _hits(database, paths, wanted, ranked[: wanted.limit * 2])
    return Found(hits[: wanted.limit], total, len(whole) == _RANKED)


def _ranked(matches: list[_Match]) -> list[_Match]:
    """Without copies; by words, and what is about equal there by time."""
    first: dict[int, _Match] = {}
    for match in matches:
        other = first.get(match.key)
        if other is None or match.id < other.id:
            first[match.key] = match
    best = min((match.score for match in first.values()), default=0.0)
    scale = _CLASSES / (best or -1.0)
    return sorted(
        first.values(),
        key=lambda match: (round(match.score * scale), match.at, match.id),
        reverse=True,
    )


def _matches(
    database: Database, wanted: Wanted, expression: str, most: int, best: bool = False
) -> list[_Match]:
    """The last `most` messages that match, or the `best` ones."""
    columns = " ".join(column for role in wanted.roles for column in ROLES[role])
    conditions, values = _conditions(database, wanted, "words.rowid")
    if conditions is None:
        return []
    order = "score" if best else "words.rowid DESC"
    rows = database.rows(
        f"""SELECT words.rowid, message.key, message.at, bm25(words, {_WEIGHTS}) AS score
            FROM words CROSS JOIN message ON message.id = words.rowid
            WHERE words MATCH ? {conditions} ORDER BY {order} LIMIT ?""",
        (
            expression if len(columns.split()) == len(COLUMNS) else f"{{{columns}}} : ({expression})",
            *values,
            most,
        ),
    )
    return [_Match(*row) for row in rows]


def _conditions(database: Database, wanted: Wanted, number: str) -> tuple[str | None, list[int]]:
    """The conditions on a message's number and time; None when nothing can fit."""
    conditions, values = "", []
    if (wanted.agent, wanted.conversation, wanted.since, wanted.until) != (None, "", None, None):
        numbers = _conversations(database, wanted)
        if not numbers:
            return None, []
        conditions += f" AND {number} BETWEEN ? AND ?"
        values += [min(numbers) * SPAN, (max(numbers) + 1) * SPAN - 1]
        if len(numbers) <= max(numbers) - min(numbers):
            conditions += f" AND {number} / {SPAN} IN ({', '.join(map(str, numbers))})"
    for limit, comparison in ((wanted.since, ">="), (wanted.until, "<")):
        if limit is not None:
            conditions += f" AND message.at {comparison} ?"
            values.append(limit)
    if wanted.running is not None:
        conversation, turn = wanted.running
        for n in _conversations(
            database, Wanted(wanted.query, agent=wanted.agent, conversation=conversation)
        ):
            conditions += f" AND NOT ({number} BETWEEN ? AND ? AND message.turn >= ?)"
            values += [n * SPAN, (n + 1) * SPAN - 1, turn]
    return conditions, values


def _conversations(database: Database, wanted: Wanted) -> list[int]:
    """The numbers of the conversations in which there may be hits."""
    conditions: list[str] = ["1"]
    values: list[str | int] = []
    if wanted.agent is not None:
        conditions.append("org = ? AND agent = ?")
        values += [wanted.agent.org, wanted.agent.agent]
    if wanted.conversation:
        conditions.append("id = ?")
        values.append(wanted.conversation)
    if wanted.since is not None:
        conditions.append("last >= ?")
        values.append(wanted.since)
    if wanted.until is not None:
        conditions.append("first < ?")
        values.append(wanted.until)
    rows = database.rows(f"SELECT number FROM conversation WHERE {' AND '.join(conditions)}", values)
    return [number for (number,) in rows]


def _newest(database: Database, wanted: Wanted) -> list[_Match]:
    conditions, values = _conditions(database, wanted, "message.id")
    if conditions is None:
        return []
    roles = ", ".join(str(SHOWN.index(role)) for role in wanted.roles)
    rows = database.rows(
        f"""SELECT id, key, at, 0.0 FROM message WHERE role IN ({roles}) {conditions}
            ORDER BY at DESC, id DESC LIMIT ?""",
        (*values, wanted.limit * 4),
    )
    return _ranked([_Match(*row) for row in rows])[: wanted.limit]


def _some(database: Database, wanted: Wanted, known: set[int]) -> list[_Match]:
    """Messages that have some of the words: by the rare ones, since words that very many messages have say
    little. Where all of them are such words, the last messages that have the first."""
    counted: list[tuple[int, str]] = []
    common = ""
    for piece in dict.fromkeys((*wanted.query.wanted, *wanted.query.pieces)):
        count = database.rows(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", (piece, _COMMON)
        )[0][0]
        if count == _COMMON:
            common = common or piece
        elif count:
            counted.append((count, piece))
    chosen: list[str] = []
    room = _SOME
    for count, piece in sorted(counted):
        room -= count
        if room >= 0:
            chosen.append(piece)
    if chosen:
        found = _matches(database, wanted, " OR ".join(chosen), wanted.limit * 4, best=True)
    else:
        found = _matches(database, wanted, common, _RANKED) if common else []
    return [match._replace(whole=False) for match in _ranked(found) if match.key not in known]


def _hits(database: Database, paths: Paths, wanted: Wanted, matches: list[_Match]) -> tuple[Hit, ...]:
    """The matches with their texts. One whose transcript says something else by now is left out."""
    reader = _Reader(database, paths)
    found: list[tuple[_Match, Entry]] = []
    for match in matches:
        if len(found) == wanted.limit:
            break
        row = database.row("SELECT id, key, start, length, part FROM message WHERE id = ?", (match.id,))
        entry = None if row is None else reader.entry(row)
        if entry is not None:
            found.append((match, entry))
    texts = [readable(entry.message) for _, entry in found]
    hits = []
    for (match, entry), snippet in zip(found, snippets(database, texts, wanted.query), strict=True):
        if wanted.query.wanted and not snippet.hits:
            continue
        agent, conversation = reader.owner(match.id // SPAN)
        before = reader.neighbours(match.id, wanted.before, before=True)
        after = reader.neighbours(match.id, wanted.after, before=False)
        hits.append(Hit(agent, conversation, entry, snippet, match.whole, before, after))
    return tuple(hits)


class _Reader:
    """Reads messages at their places."""

    def __init__(self, database: Database, paths: Paths) -> None:
        self._database = database
        self._paths = paths
        self._owners: dict[int, tuple[AgentKey, str]] = {}
        self._pieces: dict[tuple[int, int], tuple[Entry, ...]] = {}

    def owner(self, number: int) -> tuple[AgentKey, str]:
        """The agent and the id of a conversation."""
        if number not in self._owners:
            org, agent, conversation = self._database.rows(
                "SELECT org, agent, id FROM conversation WHERE number = ?", (number,)
            )[0]
            self._owners[number] = AgentKey(org, agent), conversation
        return self._owners[number]

    def entry(self, row: Row) -> Entry | None:
        """The message of a row (id, key, start, length, part); None when it is not there any more."""
        id, key, start, length, part = row
        place = id // SPAN, start
        if place not in self._pieces:  # hits have neighbours in common
            try:
                with self._open(id // SPAN) as file:
                    self._pieces[place] = entries_at(file, start, length)
            except OSError:
                return None
        entries = self._pieces[place]
        return entries[part] if part < len(entries) and key_of(entries[part].id) == key else None

    def neighbours(self, id: int, count: int, *, before: bool) -> tuple[Entry, ...]:
        """Up to `count` messages before or after a message of a conversation, in order."""
        if not count:
            return ()
        first, last = id // SPAN * SPAN, (id // SPAN + 1) * SPAN - 1
        bounds, order = ((first, id - 1), "DESC") if before else ((id + 1, last), "ASC")
        rows = self._database.rows(
            f"""SELECT id, key, start, length, part FROM message
                WHERE id BETWEEN ? AND ? AND role < {len(SHOWN)} ORDER BY id {order} LIMIT ?""",
            (*bounds, count),
        )
        found = [entry for row in (reversed(rows) if before else rows) if (entry := self.entry(row))]
        return tuple(found)

    def _open(self, number: int) -> BinaryIO:
        agent, conversation = self.owner(number)
        return self._paths.conversation(agent, conversation).open("rb")
