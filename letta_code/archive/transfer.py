"""Passages as JSON Lines, one object a line, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, cast, get_args

from letta_code.archive.passages import (
    ArchiveError,
    Passage,
    checked_tags,
    checked_text,
    new_passage_id,
    utc,
)
from letta_code.core.times import moment
from letta_code.memory.history import Source

_ID = re.compile(r"passage-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def as_plain(passage: Passage) -> dict[str, object]:
    """A passage as JSON has it."""
    return {
        "id": passage.id,
        "created_at": passage.created_at,
        "source": passage.source,
        "pointer": passage.pointer,
        "tags": list(passage.tags),
        "text": passage.text,
    }


def lines(passages: Iterable[Passage]) -> Iterator[str]:
    """One line for each passage."""
    for passage in passages:
        yield json.dumps(as_plain(passage), ensure_ascii=False) + "\n"


def read_lines(given: Iterable[str]) -> list[Passage]:
    """The passages that `lines` wrote, or that were written like it: only `text` must be there.

    Raises:
        ArchiveError: a line is none; it is named.
    """
    passages = []
    for number, line in enumerate(given, 1):
        if not line.strip():
            continue
        try:
            passages.append(_read(json.loads(line)))
        except ArchiveError as error:
            raise ArchiveError(f"line {number}: {error.message}", error.hint) from error
        except (ValueError, TypeError, RecursionError) as error:
            hint = 'a line is a JSON object such as {"text": "…", "tags": ["…"]}'
            raise ArchiveError(f"line {number} is no passage: {error}", hint) from error
    return passages


def _read(data: Any) -> Passage:
    if not isinstance(data, dict) or not isinstance(data.get("text"), str):
        raise ValueError("there is no text")
    tags, source, pointer = data.get("tags") or [], data.get("source") or "import", data.get("pointer") or ""
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("tags is no list of texts")
    if source not in get_args(Source):
        raise ValueError(f"source is one of {', '.join(get_args(Source))}")
    name, when = data.get("id") or new_passage_id(), data.get("created_at")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ValueError("id is none of ours; leave it out to get a new one")
    if not isinstance(pointer, str) or len(pointer) > 200 or not pointer.isprintable():
        raise ValueError("pointer is none")
    made = moment(when) if isinstance(when, str) else datetime.now(UTC)
    return Passage(
        name, checked_text(data["text"]), checked_tags(tags), utc(made), cast(Source, source), pointer
    )
