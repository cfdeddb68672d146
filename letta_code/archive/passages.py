"""Values of the archive: passages, what narrows a search, and what came of an insertion."""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from letta_code.core.text import well_formed
from letta_code.core.times import moment
from letta_code.errors import LettaError
from letta_code.memory.history import Source

LONGEST = 4_000
"""Characters of a passage: what a search gives back is read by a model, and embedding models read little."""

MOST_TAGS, LONGEST_TAG = 20, 60


class ArchiveError(LettaError):
    """The archive cannot do what was asked; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage. `created_at` is ISO 8601 in UTC, to the second; `pointer` says where it was written down,
    as `conversation:message` ("" where that is not known)."""

    id: str
    text: str
    tags: tuple[str, ...]
    created_at: str
    source: Source
    pointer: str = ""

    @property
    def digest(self) -> str:
        """The same for texts that differ in white space, case or compatibility forms alone."""
        return sha256(_folded(self.text).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What narrows a search: passages with any (or `every`) of `tags`, made from `start` to before `end`
    (like `created_at`; "": open)."""

    tags: tuple[str, ...] = ()
    every: bool = False
    start: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """What came of an insertion: the passage as it is kept, whether it is new, and the tags that it got
    where an equal text was there already."""

    passage: Passage
    new: bool
    added: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """How many passages there are, and how many have each tag, the most used first."""

    passages: int = 0
    tags: tuple[tuple[str, int], ...] = field(default=())


def new_passage(text: str, tags: Iterable[str], source: Source, pointer: str = "") -> Passage:
    """A passage made now.

    Raises:
        ArchiveError: the text is empty or too long, or a tag is.
    """
    return Passage(
        new_passage_id(), checked_text(text), checked_tags(tags), utc(datetime.now(UTC)), source, pointer
    )


def new_passage_id() -> str:
    """A fresh `passage-<uuid4>`."""
    return f"passage-{uuid.uuid4()}"


def checked_text(text: str) -> str:
    """`text` as it is kept. Raises `ArchiveError` when it is empty or too long."""
    text = well_formed(text).strip()
    if not text:
        raise ArchiveError("the passage is empty", "say in it what is to be found again")
    if len(text) > LONGEST:
        raise ArchiveError(
            f"the passage has {len(text):,} characters; at most {LONGEST:,} fit",
            "insert it in parts that can each be understood alone",
        )
    return text


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """`tags` in their one spelling, each once, in order. Raises `ArchiveError` when there are too many or
    one is too long."""
    found = tuple(dict.fromkeys(folded for tag in tags if (folded := _folded(well_formed(tag)))))
    if len(found) > MOST_TAGS:
        raise ArchiveError(f"{len(found)} tags; at most {MOST_TAGS} fit", "leave the least telling ones out")
    if long := next((tag for tag in found if len(tag) > LONGEST_TAG), None):
        raise ArchiveError(
            f"the tag {long[:LONGEST_TAG]}… has {len(long)} characters; at most {LONGEST_TAG} fit",
            "a tag is a word or two; details belong in the text",
        )
    return found


def narrowed(tags: Iterable[str], every: bool, start: str, end: str) -> Wanted:
    """What narrows a search, from what was written. Raises `ArchiveError` when a tag or a time is none."""
    try:
        bounds = [utc(moment(text, end=last)) if text else "" for text, last in ((start, False), (end, True))]
    except ValueError as error:
        raise ArchiveError(str(error), "dates are ISO 8601") from error
    return Wanted(checked_tags(tags), every, *bounds)


def utc(when: datetime) -> str:
    """`when`, which has a zone, as passages keep times."""
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
