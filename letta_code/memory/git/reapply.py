"""An edit made on an older revision, brought to HEAD: a three-way merge as Git makes it (renames are
followed), finer where that is plainly safe, and otherwise a conflict that says who changed what.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import cast

import pygit2
from pygit2.enums import FileMode, SortMode

from letta_code.errors import MemoryConflict, MemoryEditError
from letta_code.memory.blocks import parse_block
from letta_code.memory.edits import Edit
from letta_code.memory.git.objects import GitObjects, tree_with
from letta_code.memory.git.worktree import mode_of
from letta_code.memory.history import read_message
from letta_code.memory.snapshot import MemorySnapshot, SnapshotFiles, changed_paths

_HINT = "view it again as it is now and repeat the edit there"
_LOOKED_AT = 1000
_SHOWN_LINES = 4
_SHOWN_CHARACTERS = 160
_KEY = re.compile(r"^[^\s#:][^:\n]*:", re.MULTILINE)


def reapplied(
    git: pygit2.Repository, objects: GitObjects, edit: Edit, before: MemorySnapshot, now: MemorySnapshot
) -> dict[str, bytes | None]:
    """What `edit`, made on `before`, changes in `now`.

    Raises:
        MemoryEditError: it did not fit `before` either.
        MemoryConflict: others changed the same text since; it names them.
    """
    old, new = SnapshotFiles(before), SnapshotFiles(now)
    try:
        intended = edit.apply(old)
    except MemoryEditError:
        if not edit.reapplies:
            raise
        return edit.apply(new)  # made from something newer than its writer said
    if all(before.find(path) == now.find(path) for path in intended):
        return dict(intended)
    changes = {
        path: None if data is None else (str(git.create_blob(data)), _mode(before, path))
        for path, data in intended.items()
    }
    theirs = tree_with(git, before.root, changes)
    sides = [pygit2.Oid(hex=tree) for tree in (before.root, now.root, theirs)]
    index = git.merge_trees(sides[0], sides[1], sides[2])
    disputed = list(index.conflicts) if index.conflicts is not None else []
    settled: dict[str, bytes] = {}
    for triple in disputed:
        data = _finer(git, objects, triple, words=edit.reapplies)
        if data is None:
            raise _conflict(git, objects, before, now, [str(e.path) for e in triple if e is not None])
        settled[str(cast(pygit2.IndexEntry, triple[1]).path)] = data
    for path, data in settled.items():
        del index.conflicts[path]
        index.add(pygit2.IndexEntry(path, git.create_blob(data), FileMode(_mode(now, path))))
    merged = MemorySnapshot("", str(index.write_tree(git)), objects)
    result: dict[str, bytes | None] = {}
    for path in changed_paths(objects, now.root, merged.root):
        entry = merged.find(path)
        result[path] = objects.blob(entry.id) if entry is not None else None
    return result


def _finer(
    git: pygit2.Repository,
    objects: GitObjects,
    triple: tuple[pygit2.IndexEntry | None, pygit2.IndexEntry | None, pygit2.IndexEntry | None],
    words: bool,
) -> bytes | None:
    """A file that differs line by line on all sides, merged by keys of the front matter and by lines of the
    body, or by words when the edit names the words it replaces. None: it is a conflict."""
    if any(entry is None for entry in triple) or len({entry.path for entry in triple if entry}) != 1:
        return None
    path = str(cast(pygit2.IndexEntry, triple[0]).path)
    try:
        blocks = [parse_block(path, objects.blob(str(e.id))) for e in triple if e is not None]
    except MemoryEditError:
        return None
    header = _by_keys([block.text[: block.body_start] for block in blocks])
    bodies = [block.body for block in blocks]
    body = _by_lines(git, bodies)
    if body is None and words:
        body = _by_words(git, bodies)
    if header is None or body is None:
        return None
    data = (header + body).encode("utf-8")
    try:
        parse_block(path, data)
    except MemoryEditError:
        return None
    return data


def _by_keys(headers: list[str]) -> str | None:
    """Front matter merged key by key, in the order of ours; None when both changed one key."""
    if headers[2] in (headers[0], headers[1]):
        return headers[1]
    if headers[1] == headers[0]:
        return headers[2]
    before, ours, theirs = (_keys(header) for header in headers)
    if before is None or ours is None or theirs is None:
        return None
    result: dict[str, str] = {}
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        was, mine, other = before.get(key), ours.get(key), theirs.get(key)
        if mine == was:
            chosen = other
        elif other in (was, mine):
            chosen = mine
        else:
            return None
        if chosen is not None:
            result[key] = chosen
    end = result.pop("---")
    return "".join(result.values()) + end


def _keys(header: str) -> dict[str, str] | None:
    """The lines of each key, what comes before the first under "" and the closing line under "---"; None
    when there is no front matter or a key is there twice."""
    closing = header.rstrip().rfind("\n") + 1
    if not closing:
        return None
    starts = [match.start() for match in _KEY.finditer(header, 0, closing)]
    parts = {"": header[: starts[0]] if starts else header[:closing]}
    for start, end in zip(starts, [*starts[1:], closing], strict=False):
        key = header[start : header.index(":", start)].strip()
        if key in parts:
            return None
        parts[key] = header[start:end]
    parts["---"] = header[closing:]
    return parts


def _by_lines(git: pygit2.Repository, texts: list[str]) -> str | None:
    """Before, ours and theirs merged as Git merges a file; None where both changed the same lines."""
    trees = []
    for text in texts:
        builder = git.TreeBuilder()
        builder.insert("text", git.create_blob(text.encode("utf-8")), FileMode.BLOB)
        trees.append(builder.write())
    index = git.merge_trees(trees[0], trees[1], trees[2])
    if index.conflicts is not None:
        return None
    return cast("pygit2.Blob", git[index["text"].id]).data.decode("utf-8")


def _by_words(git: pygit2.Repository, texts: list[str]) -> str | None:
    """The same with words for lines."""
    spread = ["".join(f"{_spread(word)}\n" for word in re.findall(r"\w+|\W", text)) for text in texts]
    merged = _by_lines(git, spread)
    if merged is None:
        return None
    return "".join(_joined(line) for line in merged.split("\n")[:-1])


def _spread(word: str) -> str:
    return {"\n": "\\n", "\\": "\\\\"}.get(word, word)


def _joined(line: str) -> str:
    return {"\\n": "\n", "\\\\": "\\"}.get(line, line)


def _conflict(
    git: pygit2.Repository,
    objects: GitObjects,
    before: MemorySnapshot,
    now: MemorySnapshot,
    paths: Iterable[str],
) -> MemoryConflict:
    parts = []
    for path in dict.fromkeys(paths):
        was, is_now = before.find(path), now.find(path)
        if was == is_now:
            continue
        if is_now is None:
            did, lines = "deleted or renamed", ""
        elif was is None:
            did, lines = "made", ""
        else:
            did = "changed"
            lines = _lines(objects.blob(was.id), objects.blob(is_now.id))
        parts.append(f"{path} was {did} {_who(git, before, now, path)}{lines}")
    return MemoryConflict(
        f"this edit was made from {before.revision[:7]}, and memory has moved on: " + "; ".join(parts), _HINT
    )


def _who(git: pygit2.Repository, before: MemorySnapshot, now: MemorySnapshot, path: str) -> str:
    """'by Ada in 1a2b3c4 ("why")': the last commit since `before` that changed `path`."""
    start = pygit2.Oid(hex=now.revision)
    walk = git.walk(start, SortMode.TOPOLOGICAL)
    walk.hide(pygit2.Oid(hex=before.revision))
    for number, commit in enumerate(walk):
        parents = commit.parents
        if parents and all(_id_at(commit, path) != _id_at(parent, path) for parent in parents):
            reason = read_message(commit.message)[0].split("\n", 1)[0]
            return f'by {commit.author.name} <{commit.author.email}> in {str(commit.id)[:7]} ("{reason}")'
        if number >= _LOOKED_AT:
            break
    return "since, in a history that was rewritten"


def _id_at(commit: pygit2.Commit, path: str) -> pygit2.Oid | None:
    return commit.tree[path].id if path in commit.tree else None


def _lines(before: bytes, now: bytes) -> str:
    """What was taken out and put in, shortened: ': "a" became "b"'."""
    old, new = (data.decode("utf-8", "replace").splitlines() for data in (before, now))
    marked = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    gone = _quoted(line[1:] for line in marked if line.startswith("-"))
    came = _quoted(line[1:] for line in marked if line.startswith("+"))
    if gone and came:
        return f": {gone} became {came}"
    return f": {came} was added" if came else f": {gone} was removed"


def _quoted(lines: Iterable[str]) -> str:
    listed = [line for line in lines if line.strip()]
    words = " / ".join(
        line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "…"
        for line in listed[:_SHOWN_LINES]
    )
    more = f" (and {len(listed) - _SHOWN_LINES} more lines)" if len(listed) > _SHOWN_LINES else ""
    return f'"{words}"{more}' if words else ""


def _mode(snapshot: MemorySnapshot, path: str) -> int:
    entry = snapshot.find(path)
    return mode_of(entry is not None and entry.executable)
