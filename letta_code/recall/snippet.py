"""The part of a found message that shows why it was found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from letta_code.core.query import Query
from letta_code.core.terms import TOKENIZER, Term, indexed, name_parts, terms
from letta_code.database import Database

_WIDTH = 280  # characters
_PART, _SHARED = 4_000, 500  # characters of a part of a long text, and of those that are in the next one, too
_PARTS = 1 << 20  # parts that one text may have
_BEGIN, _END = "\x02", "\x03"  # no term holds them


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of a text on one line, as pieces of which every second is what was searched for: the first,
    third, … are what is around (the first may be empty). `cut_before` and `cut_after`: there is more."""

    pieces: tuple[str, ...]
    cut_before: bool = False
    cut_after: bool = False

    @property
    def hits(self) -> tuple[str, ...]:
        """What was searched for, as it is written here."""
        return self.pieces[1::2]

    def marked(self, begin: str, end: str) -> str:
        """The text with `begin` and `end` around what was searched for."""
        words = "".join(f"{begin}{piece}{end}" if n % 2 else piece for n, piece in enumerate(self.pieces))
        return f"{'… ' if self.cut_before else ''}{words}{' …' if self.cut_after else ''}"


def snippets(database: Database, texts: list[str], query: Query) -> list[Snippet]:
    """For each text the part that has most of what `query` asks for. SQLite itself says where it is."""
    if not texts or not query.wanted:
        return [_snippet(text, []) for text in texts]
    starts = _best_parts(database, texts, query)
    ends = [start + _PART + _SHARED for start in starts]
    all_terms = [
        [*terms(part), None, *name_parts(part)]
        for part in (text[start:end] for text, start, end in zip(texts, starts, ends, strict=True))
    ]
    rows = enumerate(" ".join(term.text if term else "\u00a6" for term in found) for found in all_terms)
    _fill(database, "shown", "", rows)
    marked: dict[int, str] = dict(
        database.rows(
            f"SELECT rowid, highlight(shown, 0, '{_BEGIN}', '{_END}') FROM temp.shown WHERE shown MATCH ?",
            (query.any_of,),
        )
    )
    shown = []
    for index, (text, found, at) in enumerate(zip(texts, all_terms, starts, strict=True)):
        places = _places(marked.get(index, ""), found)
        shown.append(_snippet(text, [(at + start, at + end) for start, end in places]))
    return shown


def _best_parts(database: Database, texts: list[str], query: Query) -> list[int]:
    """Where in each text its best part begins: to take apart all of a long one would take seconds."""
    if max(map(len, texts)) <= _PART + _SHARED:
        return [0] * len(texts)
    rows = (
        (index * _PARTS + start // _PART, indexed(text[start : start + _PART + _SHARED]))
        for index, text in enumerate(texts)
        if len(text) > _PART + _SHARED
        for start in range(0, len(text), _PART)
    )
    _fill(database, "parts", ", content=''", rows)
    ranked = database.rows(
        "SELECT rowid FROM temp.parts WHERE parts MATCH ? ORDER BY bm25(parts), rowid", (query.any_of,)
    )
    best: dict[int, int] = {}
    for (number,) in ranked:
        best.setdefault(number // _PARTS, number % _PARTS * _PART)
    return [best.get(index, 0) for index in range(len(texts))]


def _fill(database: Database, name: str, options: str, rows: Iterable[tuple[int, str]]) -> None:
    """Make the table `name` anew with these texts by their numbers, beside the index and only for us."""
    database.run(f"DROP TABLE IF EXISTS temp.{name}")
    database.run(f"CREATE VIRTUAL TABLE temp.{name} USING fts5(text, tokenize='{TOKENIZER}'{options})")
    database.run_many(f"INSERT INTO temp.{name} (rowid, text) VALUES (?, ?)", rows)


def _places(marked: str, found: list[Term | None]) -> list[tuple[int, int]]:
    """Where in the text the terms stand that SQLite marked: sorted, not overlapping."""
    places: list[tuple[int, int]] = []
    inside = False
    for written, term in zip(marked.split(" "), found, strict=False):
        if term is not None and inside and term.start >= places[-1][0]:
            places[-1] = places[-1][0], term.end
        elif term is not None and (inside or _BEGIN in written):
            places.append((term.start, term.end))
        inside = (inside or _BEGIN in written) and _END not in written
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _snippet(text: str, places: list[tuple[int, int]]) -> Snippet:
    start, end = _window(text, places)
    pieces = []
    at = start
    for begin, finish in places:
        if start <= begin and finish <= end:
            pieces += [text[at:begin], text[begin:finish]]
            at = finish
    pieces.append(text[at:end])
    flat = [_flat(piece) for piece in pieces]
    flat[0], flat[-1] = flat[0].lstrip(), flat[-1].rstrip()
    return Snippet(tuple(flat), bool(text[:start].strip()), bool(text[end:].strip()))


def _window(text: str, places: list[tuple[int, int]]) -> tuple[int, int]:
    """The part of `text` with most different words in its places, from a little before the first of them."""
    if len(text) <= _WIDTH or not places:
        return 0, min(len(text), _WIDTH)
    starts = [start for start, _ in places]
    words = [text[start:end].casefold() for start, end in places]
    room = _WIDTH * 3 // 4

    def worth(index: int) -> tuple[int, int, int]:
        within = words[index : bisect_left(starts, starts[index] + room)]
        return len(set(within)), len(within), -index

    best = max(range(len(places)), key=worth)
    start = max(0, min(starts[best] - _WIDTH // 4, len(text) - _WIDTH))
    space = text.find(" ", start, starts[best]) if start else -1
    start = space + 1 if 0 <= space < start + 20 else start
    end = max(min(len(text), start + _WIDTH), places[best][1])
    return start, end


def _flat(text: str) -> str:
    """On one line, with one blank for all blanks."""
    words = " ".join(text.split())
    return f"{' ' if text[:1].isspace() else ''}{words}{' ' if words and text[-1:].isspace() else ''}"
