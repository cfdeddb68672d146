"""A query as a person or a model writes it, and what SQLite is asked for it.

Words must all be there, in any order; `"words in quotes"` next to one another; `word*` also finds longer
words. Everything else is text: there is no query that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from letta_code.core.terms import Term, name_parts, terms
from letta_code.core.text import well_formed

_QUOTES = str.maketrans("“”„‟«»＂", '"""""""')
_PART = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')
_WANTED = 32  # words of a query that count
_PHRASE = 64  # terms in a row that count


@dataclass(frozen=True, slots=True)
class Query:
    """`wanted`: for each word or phrase the ways in which it can be written, as SQLite expressions.
    `pieces`: the single terms of all, for finding messages that have some of them."""

    text: str
    wanted: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()

    @property
    def all_of(self) -> str:
        """The expression of messages that have everything."""
        return " AND ".join(f"({way})" for way in self.wanted)

    @property
    def any_of(self) -> str:
        """The expression of messages that have anything of it."""
        return " OR ".join(dict.fromkeys((*self.wanted, *self.pieces)))


def parse(text: str) -> Query:
    """What `text` asks for."""
    text = well_formed(text).replace("\0", " ")
    wanted: dict[str, None] = {}
    pieces: dict[str, None] = {}
    for phrase, star, word in _PART.findall(text.translate(_QUOTES)):
        if len(wanted) == _WANTED:
            break
        written = phrase or word
        found = terms(written)[:_PHRASE]
        if not found:
            continue
        prefix = bool(star) or (bool(word) and word.endswith("*"))
        ways = [_row(found, prefix)]
        if len(found) == 1 and len(parts := name_parts(written)) > 1:
            ways.append(_row(parts, prefix))
        wanted[" OR ".join(ways)] = None
        if len(found) > 1:
            pieces |= dict.fromkeys(_single(term) for term in found if term.first or not term.last)
    return Query(text, tuple(wanted), tuple(pieces))


def _row(found: list[Term], prefix: bool) -> str:
    """Terms that follow one another. What ends in the middle of a run may go on there."""
    last = found[-1]
    if last.last and not last.first:
        found = found[:-1]
    return _quoted(found) + (" *" if prefix or (last.last and last.first) else "")


def _single(term: Term) -> str:
    return _quoted((term,)) + (" *" if term.last else "")


def _quoted(found: Iterable[Term]) -> str:
    """As SQLite's tokenizer takes it; terms hold no quotes."""
    return f'"{" ".join(term.text for term in found)}"'
