"""What may be written to memory: one set of rules for the memory tool, the command line and commits of
drafts. Pure: it looks at bytes and names, never at a disk.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import Block, parse_block

Changes = Mapping[str, bytes | None]
"""Path to new content; None deletes."""

Overrides = frozenset[Literal["read-only", "limit", "secret"]]
"""The rules that do not hold for a writer."""

AGENT: Overrides = frozenset()
PERSON: Overrides = frozenset({"read-only"})

_MARKERS = tuple(re.compile(rf"^{mark}(?: |\r?$)", re.MULTILINE) for mark in ("<{7}", "={7}", ">{7}"))
# Characters that some file systems drop from names, so that `.g\u200cit` would be `.git` there.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def checked_path(path: str) -> str:
    """`path` when it may name a memory file.

    Raises:
        MemoryEditError: it is empty, absolute, leaves the memory folder, has an empty, `.`, `..` or
            `.git` part, a NUL, is not Unicode text, or is too long.
    """
    if not path or path.startswith(("/", "~")):
        raise MemoryEditError(f"{path!r}: give a path relative to the memory folder")
    if "\0" in path:
        raise MemoryEditError(f"{path!r}: a path cannot hold NUL")
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise MemoryEditError(f"{path!r}: the name is not valid Unicode text") from error
    parts = path.split("/")
    for part in parts:
        if part in ("", ".", ".."):
            raise MemoryEditError(f"{path!r}: a path cannot have an empty, `.` or `..` part")
        plain = _IGNORED.sub("", part).casefold().rstrip(". ")
        if plain.split(":", 1)[0] in (".git", "git~1"):
            raise MemoryEditError(f"{path!r}: `.git` is Git's own name")
    if size > 1000 or any(len(part.encode("utf-8")) > 240 for part in parts):
        raise MemoryEditError(f"{path[:60]!r}…: the name is too long")
    return path


def problems_of(
    files: Mapping[str, bytes], changes: Changes, overrides: Overrides = AGENT
) -> tuple[str, ...]:
    """Everything that is wrong with `changes` to `files`; empty when they may be committed."""
    return tuple(_problems(files, changes, overrides))


def check(files: Mapping[str, bytes], changes: Changes, overrides: Overrides = AGENT) -> None:
    """Refuse changes that break a rule.

    Raises:
        MemoryEditError: all that is wrong, in one message.
    """
    if problems := problems_of(files, changes, overrides):
        raise MemoryEditError("; ".join(problems))


def check_content(path: str, data: bytes, overrides: Overrides = AGENT) -> Block | None:
    """The block in `data`, None when `path` is not a Markdown file.

    Raises:
        MemoryEditError: unreadable, over its own limit, or with conflict markers.
    """
    if not path.endswith(".md"):
        _refuse_markers(path, data.decode("utf-8", "replace"))
        return None
    block = parse_block(path, data)
    _refuse_markers(path, block.text)
    if "limit" not in overrides and block.limit is not None and len(block.body) > block.limit:
        raise MemoryEditError(
            f"{path}: its limit is {block.limit:,} characters and the text would have {len(block.body):,}; "
            "shorten it, or move detail to a file outside system/"
        )
    return block


def refuse_read_only(path: str, data: bytes) -> None:
    """Refuse a change to a block that says `read_only: true`.

    Raises:
        MemoryEditError: it says so.
    """
    try:
        read_only = path.endswith(".md") and parse_block(path, data).read_only
    except MemoryEditError:
        return  # what cannot be read cannot claim protection; a change may be its repair
    if read_only:
        raise MemoryEditError(
            f"{path}: is read-only; only a person may change it, with git in the memory folder"
        )


def _problems(files: Mapping[str, bytes], changes: Changes, overrides: Overrides) -> Iterator[str]:
    added = [path for path, data in changes.items() if data is not None and path not in files]
    for path, data in changes.items():
        try:
            if path in files and "read-only" not in overrides:
                refuse_read_only(path, files[path])
            if data is not None:
                if path not in files:
                    checked_path(path)
                check_content(path, data, overrides)
        except MemoryEditError as error:
            yield error.message
    if added:
        kept = [path for path in files if changes.get(path, b"") is not None]
        yield from _clashes(kept, added)


def _clashes(kept: Iterable[str], added: Iterable[str]) -> Iterator[str]:
    """New names that a file system could not hold beside the others."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for path in kept:
        taken.add(path)
        for name in _with_folders(path):
            names.setdefault(_folded(name), name)
    for path in added:
        for name in _with_folders(path):
            other = names.setdefault(_folded(name), name)
            if other != name:
                yield f"{path!r}: differs from {other!r} only in case or Unicode form; use that name"
                break
            if name != path and name in taken:
                yield f"{path!r}: {name!r} is a file, not a folder"
                break
        else:
            if path not in taken and any(other.startswith(path + "/") for other in taken):
                yield f"{path!r}: is a folder"
            taken.add(path)


def _with_folders(path: str) -> Iterator[str]:
    at = path.find("/")
    while at != -1:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path


def _folded(name: str) -> str:
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def _refuse_markers(path: str, text: str) -> None:
    if all(mark.search(text) for mark in _MARKERS):
        raise MemoryEditError(f"{path}: holds conflict markers (<<<<<<< ======= >>>>>>>); resolve them first")
