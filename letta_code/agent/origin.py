"""Where a text came from: was it copied from what tools printed, or is it the person's or the agent's own?

Pure and deterministic: it compares words. A paraphrase is nobody's copy here; what the model itself says
about its source is judged elsewhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from letta_code.core.messages import Message, Text, ToolCall, ToolResult

RUN = 8.0
"""Weight of a copied run that counts by itself: a word weighs 1, a character of a script without spaces
0.6."""

SHARE = 0.6
"""Share of the text that, copied in pieces, counts too."""

_NEARLY = 0.75
"""Share of a text's words that make it the person's when one short message of theirs has them: a short fact
is told again in other words ("this repo uses pnpm") and then looks like a line of a file."""

_MESSAGE = 100  # words of such a message

_LEAST = 3.0
"""Weight below which nothing counts: every text has some words in common with every other."""

_SEED = 3  # words in a row that are compared at once

_INSTRUCTIONS = re.compile(r"^(\S+) of this project \(written by the project's authors", re.MULTILINE)
_LINE_NUMBER = re.compile(r"^(?:[^\s:]+:)?[ ]*\d+[\t:→-]", re.MULTILINE)
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_FOREIGN = re.compile(rf"[{_UNSPACED}]")


@dataclass(frozen=True, slots=True)
class Source:
    """A text of the conversation and where it came from, for people: "Read README.md"."""

    name: str
    text: str


def trace(text: str, outside: Iterable[Source], trusted: Iterable[str] = ()) -> str:
    """The name of the source that most of `text` was copied from, "" when it is no copy. What `trusted` texts
    say too counts as theirs.

    White space, case, punctuation, Markdown, line numbers and compatibility forms make no difference.
    """
    words = _words(text)
    seeds: dict[tuple[str, ...], list[int]] = {}
    size = min(_SEED, len(words))
    for at in range(len(words) - size + 1):
        seeds.setdefault(tuple(words[at : at + size]), []).append(at)
    if not seeds:
        return ""
    trusted = tuple(trusted)
    known = {at for own in trusted for at in _found(seeds, size, own)}
    hits: Counter[str] = Counter()
    copied: set[int] = set()
    for source in outside:
        found = _found(seeds, size, source.text) - known
        copied |= found
        hits[source.name] += len(found)
    run, whole = _weigh(words, size, copied, known)
    if run < _LEAST or (run < RUN and whole <= SHARE * _weight(words)):
        return ""
    if run < RUN and any(_says_nearly(own, words) for own in trusted):
        return ""
    return hits.most_common(1)[0][0]


def outside_of(messages: Iterable[Message], name: Callable[[ToolCall], str]) -> Iterator[Source]:
    """What a conversation holds that neither the person nor memory said: the results of calls, and the
    project's instructions. `name` gives a call's name for people, "" when it only looked at memory."""
    calls: dict[str, ToolCall] = {}
    for message in messages:
        for block in message.blocks[: message.reminder]:
            text = block.text if isinstance(block, Text) else ""
            if found := _INSTRUCTIONS.search(text):
                yield Source(f"{found[1]} of the project", text[found.end() :])
        calls.update((call.id, call) for call in message.tool_calls)
        for block in message.blocks:
            call = calls.get(block.call_id) if isinstance(block, ToolResult) else None
            if isinstance(block, ToolResult) and call is not None and (words := name(call)):
                yield Source(words, block.text)


def said_by_person(messages: Iterable[Message]) -> Iterator[str]:
    """The person's own words."""
    for message in messages:
        if message.role == "user" and message.origin == "person":
            yield message.text


def _found(seeds: dict[tuple[str, ...], list[int]], size: int, text: str) -> set[int]:
    """Where in the traced text a seed of `text` begins."""
    words = _words(_LINE_NUMBER.sub("", text))
    rows = zip(*(words[start:] for start in range(size)), strict=False)
    return {at for row in set(rows) & seeds.keys() for at in seeds[row]}


def _says_nearly(own: str, words: Sequence[str]) -> bool:
    """Whether a short text has most of `words`. Single characters of scripts without spaces say nothing."""
    said = _words(own)
    if len(said) > _MESSAGE:
        return False
    both = {word for word in said if not _FOREIGN.match(word)}.intersection(words)
    return _weight([word for word in words if word in both]) >= _NEARLY * _weight(words)


def _weigh(words: Sequence[str], size: int, copied: set[int], known: set[int]) -> tuple[float, float]:
    """Weights of the longest copied run and of all that was copied."""
    own = {at + step for at in known for step in range(size)}
    longest = whole = 0.0
    for start, end in _runs(sorted(copied), size):
        weight = _weight([words[at] for at in range(start, end) if at not in own])
        longest, whole = max(longest, weight), whole + weight
    return longest, whole


def _runs(starts: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Stretches of words that neighbouring seeds cover."""
    begin = end = -1
    for at in starts:
        if at > end:
            if begin >= 0:
                yield begin, end
            begin = at
        end = at + size
    if begin >= 0:
        yield begin, end


def _weight(words: Sequence[str]) -> float:
    return sum(0.6 if _FOREIGN.match(word) else 1.0 for word in words)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())
