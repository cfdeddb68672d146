"""Text as words that a full-text index can hold, in any language: what is indexed and what is asked go the
same way through here.

Scripts without spaces become pairs of neighbouring characters, and the last one of a run alone, so that any
two characters in a row are found, and a single one as a beginning. Names of code are indexed whole and in
their parts, pictographs by their numbers. The result is for FTS5's tokenizer `unicode61`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of scripts that are written without spaces, or with spaces that are no borders of words, for
use in a regular expression's class."""

_PICTOGRAPHS = "\u2190-\u2bff\U0001f000-\U0001faff"
_TOKEN = re.compile(rf"([{UNSPACED}]+)|([{_PICTOGRAPHS}])|[^\W_{UNSPACED}]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def searchable(text: str) -> str:
    """`text` as its words, for the index."""
    return " ".join(_words(text, asked=False))


def any_of(query: str) -> str:
    """The FTS5 expression that finds what has any of the words of `query`; "" when it has none."""
    return " OR ".join(f'"{word}"' if len(word) > 1 else f'"{word}" *' for word in _asked(query))


def _asked(query: str) -> dict[str, None]:
    return dict.fromkeys(_words(query, asked=True))


def _words(text: str, *, asked: bool) -> Iterator[str]:
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text)):
        run, pictograph = match.groups()
        if run:
            yield from (run[at : at + 2] for at in range(len(run) - 1))
            if not asked or len(run) == 1:
                yield run[-1]
        elif pictograph:
            yield f"u{ord(pictograph):x}"
        else:
            word = match[0]
            yield word.casefold()
            if not asked and len(parts := _PART.findall(word)) > 1:
                yield from (part.lower() for part in parts)
