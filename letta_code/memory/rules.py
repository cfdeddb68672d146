"""What may be written to memory: one set of rules for the memory tool, the command line, commits of drafts
and the hook of plain Git. Pure: it looks at bytes and names, never at a disk.
"""

from __future__ import annotations

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import Block, parse_block
from letta_code.memory.secrets import found, masked, new_secrets, refusal

Changes = Mapping[str, bytes | None]
"""Path to new content; None deletes."""


class Folders(Mapping[str, bytes]):
    """Files that can be listed one folder at a time, so that a check of one name does not read them all."""

    @abstractmethod
    def inside(self, folder: str) -> Iterable[str]:
        """The names in `folder` ("" or ending with `/`), if there is one; a folder's ends with `/`."""


Overrides = frozenset[Literal["read-only", "limit", "secret"]]
"""The rules that do not hold for a writer."""

AGENT: Overrides = frozenset()
PERSON: Overrides = frozenset({"read-only"})


def overrides_in(environment: Mapping[str, str]) -> Overrides:
    """Whose rules hold for a process with this environment: an agent's own shell names the agent."""
    return AGENT if environment.get("LETTA_AGENT_ID") else PERSON


_MARKERS = tuple(re.compile(rf"^{mark}(?: |\r?$)", re.MULTILINE) for mark in ("<{7}", "={7}", ">{7}"))
# Characters that some file systems drop from names, so that `.g\u200cit` would be `.git` there.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def checked_path(path: str) -> str:
    """`path` when it may name a memory file.

    Raises:
        MemoryEditError: it is empty, absolute, leaves the memory folder, has an empty, `.`, `..` or
            `.git` part, a NUL, is not Unicode text, or is too long.
    """
    name = repr(masked(path))
    if not path or path.startswith(("/", "~")):
        raise MemoryEditError(f"{name}: give a path relative to the memory folder")
    if "\0" in path:
        raise MemoryEditError(f"{name}: a path cannot hold NUL")
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise MemoryEditError(f"{name}: the name is not valid Unicode text") from error
    parts = path.split("/")
    for part in parts:
        if part in ("", ".", ".."):
            raise MemoryEditError(f"{name}: a path cannot have an empty, `.` or `..` part")
        plain = _IGNORED.sub("", part).casefold().rstrip(". ")
        if plain.split(":", 1)[0] in (".git", "git~1"):
            raise MemoryEditError(f"{name}: `.git` is Git's own name")
    if size > 1000 or any(len(part.encode("utf-8")) > 240 for part in parts):
        raise MemoryEditError(f"{name[:60]}…: the name is too long")
    return path


def problems_of(
    files: Mapping[str, bytes], changes: Changes, overrides: Overrides = AGENT
) -> tuple[str, ...]:
    """All that is wrong with `changes` to `files`, secrets masked; empty when they may be committed."""
    return tuple(problem for _, problem in _problems(files, changes, overrides))


def paths_with_problems(
    files: Mapping[str, bytes], changes: Changes, overrides: Overrides = AGENT
) -> tuple[tuple[str, str], ...]:
    """`problems_of`, each as the path of its file and what is wrong with it."""
    return tuple(
        (path, problem.removeprefix(f"{path}: ").removeprefix(f"{path!r}: "))
        for path, problem in _problems(files, changes, overrides)
    )


def check(files: Mapping[str, bytes], changes: Changes, overrides: Overrides = AGENT) -> None:
    """Refuse changes that break a rule.

    Raises:
        MemoryEditError: all that is wrong, in one message; secrets in it are masked.
    """
    if problems := problems_of(files, changes, overrides):
        raise MemoryEditError("; ".join(problems))


def check_content(
    path: str, data: bytes, overrides: Overrides = AGENT, before: bytes | None = None
) -> Block | None:
    """The block in `data`, None when `path` is not a Markdown file. `before` is what the file held.

    Raises:
        MemoryEditError: unreadable, over its own limit (unless it was before, and got no longer), with
            conflict markers, or with a key twice in its front matter that was there once.
    """
    if not path.endswith(".md"):
        if has_markers(data.decode("utf-8", "replace")):
            raise MemoryEditError(f"{path}: {MARKERS}; resolve them first")
        return None
    block = parse_block(path, data)
    if has_markers(block.text):
        raise MemoryEditError(f"{path}: {MARKERS}; resolve them first")
    old = _readable(path, before)
    if twice := [key for key in block.repeated if old is None or key not in old.repeated]:
        raise MemoryEditError(f"{path}: {repeated_keys(twice)}; keep one of them")
    if "limit" not in overrides and is_over_limit(block) and not _was_over_limit(old, block):
        raise MemoryEditError(
            f"{path}: its limit is {block.limit or 0:,} characters and the text would have "
            f"{len(block.body):,}; shorten it, or move detail to a file outside system/"
        )
    return block


def is_over_limit(block: Block) -> bool:
    """Whether the body is longer than the block's own limit."""
    return block.limit is not None and len(block.body) > block.limit


def has_markers(text: str) -> bool:
    """Whether a merge that was not finished left its conflict markers in `text`."""
    return "<<<<<<<" in text and all(mark.search(text) for mark in _MARKERS)


MARKERS = "holds conflict markers (<<<<<<< ======= >>>>>>>)"
"""What is wrong with a text that has them."""


def repeated_keys(keys: Iterable[str]) -> str:
    """What is wrong with a front matter that has `keys` more than once."""
    return f"the front matter has the key {', '.join(map(repr, keys))} twice"


def clashes(paths: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Of names that differ from another only in case or Unicode form, or are a file and a folder at once:
    the path and what is wrong with it."""
    return tuple(_clashes((), sorted(paths)))


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
        raise MemoryEditError(f"{path}: is read-only; only a person may change it")


def _problems(
    files: Mapping[str, bytes], changes: Changes, overrides: Overrides
) -> Iterator[tuple[str, str]]:
    added = [path for path, data in changes.items() if data is not None and path not in files]
    for path, data in changes.items():
        before = files.get(path)
        try:
            if before is not None and "read-only" not in overrides:
                refuse_read_only(path, before)
            if data is not None:
                if before is None:
                    checked_path(path)
                check_content(path, data, overrides, before)
        except MemoryEditError as error:
            yield path, masked(error.message)
        if data is not None and "secret" not in overrides:
            yield from _secrets(files, changes, path, data)
    if added:
        for path, problem in _clashes(_beside(files, changes, added), added):
            yield path, masked(problem)


def _secrets(
    files: Mapping[str, bytes], changes: Changes, path: str, data: bytes
) -> Iterator[tuple[str, str]]:
    """What memory holds already is let through: under the same name, or moved here from another."""
    text = _text_of(data)
    if found(text):
        moved = (name for name, change in changes.items() if change is None and name in files)
        known = [_text_of(files[name]) for name in {path, *moved} if name in files]
        if secrets := new_secrets(text, known):
            yield path, f"{masked(path)}: {refusal(secrets)}"
    if path not in files and (secrets := found(path)):
        yield path, f"{masked(path)}: its name {refusal(secrets)}"


def _text_of(data: bytes) -> str:
    return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8", "replace")


def _readable(path: str, data: bytes | None) -> Block | None:
    try:
        return None if data is None else parse_block(path, data)
    except MemoryEditError:
        return None


def _was_over_limit(old: Block | None, new: Block) -> bool:
    return old is not None and is_over_limit(old) and len(new.body) <= len(old.body)


def _beside(files: Mapping[str, bytes], changes: Changes, added: Iterable[str]) -> Iterator[str]:
    """The names that `added` could clash with, of those that stay; a folder's ends with `/`."""
    if not isinstance(files, Folders):
        yield from (path for path in files if changes.get(path, b"") is not None)
        return
    emptied = {folder for path, data in changes.items() if data is None for folder in _folders_of(path)}

    def stays(path: str) -> bool:
        if not path.endswith("/"):
            return changes.get(path, b"") is not None
        return path not in emptied or any(stays(path + name) for name in files.inside(path))

    for folder in sorted({"", *(folder for path in added for folder in _folders_of(path))}):
        yield from (path for name in files.inside(folder) if stays(path := folder + name))


def _clashes(kept: Iterable[str], added: Iterable[str]) -> Iterator[tuple[str, str]]:
    """New names that a file system could not hold beside the others; `kept` may end with `/`: a folder."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    folders: set[str] = set()
    for path in kept:
        taken.add(path)
        for name in _with_folders(path):
            names.setdefault(_folded(name), name)
            if name != path:
                folders.add(name)
    for path in added:
        for name in _with_folders(path):
            other = names.setdefault(_folded(name), name)
            if other != name:
                yield path, f"{path!r}: differs from {other!r} only in case or Unicode form; use that name"
                break
            if name != path and name in taken:
                yield path, f"{path!r}: {name!r} is a file, not a folder"
                break
        else:
            if path not in taken and path in folders:
                yield path, f"{path!r}: is a folder"
            taken.add(path)
            folders.update(name for name in _with_folders(path) if name != path)


def _folders_of(path: str) -> list[str]:
    return [name + "/" for name in _with_folders(path) if name != path]


def _with_folders(path: str) -> Iterator[str]:
    at = path.find("/")
    while at != -1:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path


def _folded(name: str) -> str:
    return name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()
