"""Real tokens where a vocabulary is on this machine, to show what fills a window before an answer has told.

No turn and no start may wait for it: a vocabulary takes seconds to load and 80 MB. tiktoken's own loader asks
the network for a file that is missing or damaged, so files are found and checked here.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha1, sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.models.base import ModelInfo

if TYPE_CHECKING:
    from tiktoken import Encoding

_FAMILY = re.compile(r"(ft:)?(chatgpt|gpt|codex|o\d)\b")
_OLD = re.compile(r"(ft:)?gpt-(3|4(?!o|\.\d))")
_SOURCE = "https://openaipublic.blob.core.windows.net/encodings"  # names files in a cache; nothing asks it
_WORD = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
)
_PUBLISHED = {  # as in tiktoken_ext.openai_public: SHA-256, and how texts are split
    "cl100k_base": (
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
        r"|\s*[\r\n]|\s+(?!\S)|\s",
    ),
    "o200k_base": (
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        f"{_WORD % ('*', '+')}|{_WORD % ('+', '*')}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
}
_PIECE = 100_000  # characters at a time: tiktoken panics over much longer runs of spaces


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer that is loaded."""

    name: str
    encoding: Encoding

    def count(self, text: str) -> int:
        """Tokens of `text`; what looks like a special token is text."""
        pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
        return sum(len(self.encoding.encode_ordinary(piece)) for piece in pieces)


def vocabulary_of(info: ModelInfo, environment: Mapping[str, str] = os.environ) -> Vocabulary | None:
    """The tokenizer of an OpenAI model, loaded anew; None where its vocabulary is not here, or damaged."""
    if info.provider != "openai" or not _FAMILY.match(info.name):
        return None
    name = "cl100k_base" if _OLD.match(info.name) else "o200k_base"
    for data in _candidates(name, environment.get("TIKTOKEN_CACHE_DIR")):
        if sha256(data).hexdigest() == _PUBLISHED[name][0]:
            return loaded(name, data)
    return None


def loaded(name: str, data: bytes) -> Vocabulary:
    """The tokenizer `name` with the ranks of `data`, lines of a token in base64 and its number."""
    from tiktoken import Encoding

    ranks = {b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines())}
    pattern = _PUBLISHED[name][1]
    return Vocabulary(name, Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}))


def _candidates(name: str, cache: str | None) -> Iterator[bytes]:
    """What may be the vocabulary: in tiktoken's cache, if the person named it, and in `bpe-openai`'s data."""
    if cache:
        with contextlib.suppress(OSError):
            yield (Path(cache) / sha1(f"{_SOURCE}/{name}.tiktoken".encode()).hexdigest()).read_bytes()
    package = find_spec("bpe_openai")  # its own tokenizer, 74 MB of code, is not imported
    for folder in (package and package.submodule_search_locations) or ():
        with contextlib.suppress(OSError, EOFError, zlib.error):
            yield gzip.decompress((Path(folder) / "data" / f"{name}.tiktoken.gz").read_bytes())
