"""Text as the search index sees it: terms, of messages and of queries by the same rule.

A term is a word, lower-case and without accents; `foo.bar_baz` is three words in a row. Where words are
written without spaces between them (Chinese, Japanese, Thai, …; Korean too, for its particles), each
character and the one behind it are a term, so that any part of such a text is terms in a row; the last
character of a run is a term of its own. An emoji or another sign is a term. `FooBar` is the word `foobar`,
and behind the text, for those who look for its parts, `foo bar`.

SQLite's tokenizer (`porter ascii`) then takes runs of ASCII letters, digits and everything that is not
ASCII, and reduces English words to their stems.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

TOKENIZER = "porter ascii"
LONGEST = 64
"""Characters of a word that count."""
_PARTS = "\u00a6"  # a term between a text and the parts of its names, so that no phrase spans both

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u19e0-\u19ff\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    "\u303b\u3041-\u3096\u3099-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48c\ua960-\ua97f\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_MARKED = "\u0900-\u0963\u0966-\u0dff"  # scripts of India, whose vowel signs Python does not count as letters
_SIGNS = (
    "\u00a9\u00ae\u20a0-\u20cf\u2190-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u2bff"
    "\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
)
_TERM = re.compile(
    f"(?P<run>[{_UNSPACED}]+)|(?P<sign>[{_SIGNS}])|(?:[^\\W_{_UNSPACED}{_SIGNS}]|[{_MARKED}])+"
)
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u064b-\u065f\u0670]+"
)
_LONG = re.compile(f"([A-Za-z0-9]{{{LONGEST}}})[A-Za-z0-9]+")
_WRITTEN = re.compile("[A-Za-z0-9\u0080-\U0010ffff]+")
_CLUSTER = re.compile("(?s).[\u0300-\u036f\u3099\u309a\uff9e\uff9f\u1160-\u11ff]*")
_HUMP = re.compile("[a-z][A-Z]|[A-Z]{2}[a-z]")
_NAME = re.compile(
    f"(?<![A-Za-z0-9])(?=[A-Za-z0-9]*?(?:{_HUMP.pattern}))[A-Za-z0-9]{{2,{LONGEST}}}(?![A-Za-z0-9])"
)
_NAME_PART = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Term(NamedTuple):
    """A term and where in the text it stands. `last`: the last character of a run, alone; `first`: there
    is nothing of the run before it."""

    text: str
    start: int
    end: int
    last: bool = False
    first: bool = True


def indexed(text: str) -> str:
    """What is put into the index for `text`: its terms in order, for SQLite's tokenizer."""
    if not text.isascii():
        body = " ".join(_texts(_folded(text)))
    elif max(map(len, text.split()), default=0) > LONGEST:
        body = _LONG.sub(r"\1", text)
    else:
        body = text
    body = body.replace("\0", " ")  # SQLite's text would end there
    if _HUMP.search(text) is None:
        return body
    parts = [part for name in dict.fromkeys(_NAME.findall(text)) for part in _NAME_PART.findall(name)]
    return f"{body} {_PARTS} {' '.join(parts)}" if parts else body


def terms(text: str) -> list[Term]:
    """The terms that `indexed` gives, parts of names left out, and where they stand in `text`."""
    found = []
    for written in _WRITTEN.finditer(text):
        if written[0].isascii():
            found.append(Term(written[0].lower()[:LONGEST], *written.span()))
            continue
        folded: list[str] = []
        places: list[tuple[int, int]] = []
        for cluster in _CLUSTER.finditer(written[0]):
            characters = _folded_cluster(cluster[0])
            folded.append(characters)
            place = (written.start() + cluster.start(), written.start() + cluster.end())
            places += [place] * len(characters)
        for term in _terms("".join(folded)):
            start, end = places[term.start][0], places[term.end - 1][1]
            found.append(Term(term.text, start, end, term.last, term.first))
    return found


def name_parts(text: str) -> list[Term]:
    """The parts of names such as `FooBar`, and where they stand in `text`."""
    return [
        Term(part[0].lower(), name.start() + part.start(), name.start() + part.end())
        for name in _NAME.finditer(text)
        for part in _NAME_PART.finditer(name[0])
    ]


def _texts(folded: str) -> list[str]:
    """The texts of `_terms`: this is where building an index spends its time."""
    found: list[str] = []
    for match in _TERM.finditer(folded):
        text = match[0]
        if match.lastgroup == "run":
            found += [text[index : index + 2] for index in range(len(text))]
        else:
            found.append(text[:LONGEST])
    return found


def _terms(folded: str) -> Iterator[Term]:
    for match in _TERM.finditer(folded):
        start, end = match.span()
        if match["run"] is None:
            yield Term(match[0][:LONGEST], start, end)
            continue
        for index in range(start, end - 1):
            yield Term(folded[index : index + 2], index, index + 2)
        yield Term(folded[end - 1], end - 1, end, last=True, first=end - start == 1)


@lru_cache(4096)
def _folded_cluster(text: str) -> str:
    return _folded(text)


def _folded(text: str) -> str:
    """Without case, width and accents."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))
