"""Values of memory's history, and the text of a commit message: a reason, then trailers that say where the
knowledge came from. No Git here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from letta_code.errors import MemoryEditError

Source = Literal["user-stated", "inferred", "tool-output", "import", "reflection"]

_TRAILER = re.compile(r"(Letta-[A-Za-z-]+): (.*)\Z")
_ANY_TRAILER = re.compile(r"[A-Za-z0-9-]+: |\(cherry picked from commit ")
_FORGED = re.compile(r"\s*letta-[\w-]*\s*:", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Author:
    """Who a commit is by. Characters that Git does not allow in an identity are dropped."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a memory came from; becomes the trailers `Letta-Agent`, `Letta-Conversation`,
    `Letta-Tool-Call`, `Letta-Source` and, when a person has seen and accepted the text, `Letta-Reviewed`.
    Empty values are left out."""

    agent: str = ""
    conversation: str = ""
    tool_call: str = ""
    source: Source | None = None
    reviewed: bool = False


@dataclass(frozen=True, slots=True)
class MemoryCommit:
    """One commit. `reason` is its message without trailers, `when` ISO 8601 with the author's offset,
    `paths` what it changed against its first parent, `parent` empty for the first commit."""

    revision: str
    parent: str
    reason: str
    author_name: str
    author_email: str
    when: str
    paths: tuple[str, ...]
    trailers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Draft:
    """A file of the work tree that differs from HEAD."""

    path: str
    state: Literal["new", "modified", "deleted"]


@dataclass(frozen=True, slots=True)
class BlamedLine:
    """A line of a file (`number` from 1, front matter included; `text` without its end) and the commit that
    wrote it, where the file was called `path` and the line had the number `original`."""

    number: int
    text: str
    commit: MemoryCommit
    path: str
    original: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that holds what was searched; `line` counts from 1, and is 0 when it is the file's name."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A line of the past that holds what was searched, with the commits that brought it and took it away;
    `removed` is None while it is there."""

    path: str
    text: str
    added: MemoryCommit
    removed: MemoryCommit | None


@dataclass(frozen=True, slots=True)
class Effect:
    """What restoring does to one file. "kept" is a draft or a file that was never committed: it stays as it
    is; "blocked" a draft of a file that would change, which stops the whole."""

    path: str
    what: Literal["changed", "brought back", "removed", "kept", "blocked"]


def commit_message(reason: str, provenance: Provenance | None) -> str:
    """The message of a commit. Lines of `reason` that look like our trailers are quoted with `> `.

    Raises:
        MemoryEditError: the reason is empty.
    """
    lines = [_CONTROL.sub("", line).rstrip() for line in reason.strip().splitlines()]
    words = "\n".join(f"> {line}" if _FORGED.match(line) else line for line in lines).strip()
    if not words:
        raise MemoryEditError("a memory commit needs a reason: one sentence that says why")
    words = words.encode("utf-8", "replace").decode("utf-8")
    trailers = _trailers(provenance)
    return words + "\n" + (f"\n{trailers}" if trailers else "")


def read_message(message: str) -> tuple[str, dict[str, str]]:
    """Reason and trailers of a commit message. Trailers of others (`Signed-off-by`) stay in the reason."""
    *paragraphs, last = message.strip().split("\n\n")
    lines = last.splitlines()
    start = next((at for at, line in enumerate(lines) if _TRAILER.match(line)), len(lines))
    if not paragraphs or start == len(lines) or not all(map(_ANY_TRAILER.match, lines[start:])):
        return message.strip(), {}
    trailers = {match[1]: match[2] for line in lines if (match := _TRAILER.match(line))}
    others = "\n".join(line for line in lines if not _TRAILER.match(line))
    return "\n\n".join([*paragraphs, others]).strip(), trailers


def _trailers(provenance: Provenance | None) -> str:
    if provenance is None:
        return ""
    values = {
        "Letta-Agent": provenance.agent,
        "Letta-Conversation": provenance.conversation,
        "Letta-Tool-Call": provenance.tool_call,
        "Letta-Source": provenance.source or "",
        "Letta-Reviewed": "person" if provenance.reviewed else "",
    }
    flat = {key: " ".join(_CONTROL.sub(" ", value).split()) for key, value in values.items()}
    return "".join(f"{key}: {value}\n" for key, value in flat.items() if value)
