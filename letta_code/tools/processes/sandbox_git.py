"""Which parts of Git repositories a sandboxed command may write so that `git commit` works, and which not
because Git runs what they say: hooks and configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

_MOST = 50  # repositories and modules that are looked at
_DEPTH = 6  # of a module inside modules
_SMALL = 1 << 20  # bytes; a configuration file is not larger
_NAMED = re.compile(rb"^[ \t]*(hookspath|path|worktree)[ \t]*=[ \t]*\"?([^\"\r\n#;]+)", re.I | re.M)


@dataclass(frozen=True, slots=True)
class GitParts:
    """Folders to open, files and folders inside them to keep read-only, and folders that do not exist
    and must not come into being. Resolved."""

    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    closed: tuple[Path, ...] = ()


def git_parts(roots: Iterable[Path]) -> GitParts:
    """The parts of the repositories that the folders `roots` (resolved) are in, and of those directly
    below them, when there are not too many.

    A `.git` file is believed only when the folder it names points back: a command could have written it.
    `.git` itself is among the writable: as a mount it cannot be moved away and replaced.
    """
    roots = tuple(roots)
    writable: list[Path] = []
    protected: list[Path] = []
    closed: list[Path] = []
    for top in dict.fromkeys(_tops(roots)):
        entry = top / ".git"
        if entry.is_symlink():
            continue
        folder = _linked(entry) if entry.is_file() else entry
        if entry.is_file():
            protected.append(entry)
        if folder is None or not (folder / "HEAD").is_file():
            continue
        directories = list(_directories(folder))
        if any((each / name).is_symlink() for each in directories for name in ("config", "hooks")):
            protected.append(folder)  # a link can be replaced, whatever it leads to
            continue
        if folder != entry or any(root.is_relative_to(top) for root in roots):
            writable.append(folder)
        for each in directories:
            protected += _obeyed(each, top)
            if not (each / "hooks").exists():
                closed.append(each / "hooks")
    return GitParts(tuple(writable), tuple(protected), tuple(closed))


def _tops(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        for folder in (root, *root.parents):
            if os.path.lexists(folder / ".git"):
                yield folder
                break
        try:
            children = list(islice(os.scandir(root), 10 * _MOST))
        except OSError:
            continue
        folders = (Path(entry.path) for entry in children if entry.is_dir(follow_symlinks=False))
        yield from islice((path for path in folders if os.path.lexists(path / ".git")), _MOST)


def _linked(entry: Path) -> Path | None:
    """The repository of a worktree or a submodule whose `.git` is the file `entry`."""
    text = _read(entry)
    if not text.startswith(b"gitdir:"):
        return None
    try:
        folder = (entry.parent / os.fsdecode(text[7:].strip())).resolve()
        if folder.parent.name == "worktrees":
            back = (folder / os.fsdecode(_read(folder / "gitdir").strip())).resolve()
            return folder.parent.parent if back == entry else None
        named = [value for name, value in _names(folder / "config") if name == "worktree"]
        return folder if any((folder / value).resolve() == entry.parent for value in named) else None
    except (OSError, ValueError, RuntimeError):
        return None


def _directories(folder: Path) -> Iterator[Path]:
    """`folder` and the repositories of its submodules."""
    yield folder
    found = (Path(path) for path, _, _ in os.walk(folder / "modules"))
    depth = len(folder.parts) + _DEPTH
    inner = (path for path in found if len(path.parts) <= depth and (path / "HEAD").is_file())
    yield from islice(inner, _MOST)


def _obeyed(folder: Path, top: Path) -> Iterator[Path]:
    """Files of a repository that Git obeys, and existing ones that its configuration names."""
    trees = folder / "worktrees"
    linked = sorted(trees.iterdir()) if trees.is_dir() else []
    names = ("config", "hooks", "config.worktree", "commondir")
    fixed = [folder / name for name in names]
    fixed += [each / name for each in linked for name in ("commondir", "gitdir", "config.worktree")]
    yield from (path for path in fixed if path.exists() and not path.is_symlink())
    for name, value in _names(folder / "config"):
        if name != "worktree":
            path = ((top if name == "hookspath" else folder) / os.path.expanduser(value)).resolve()
            if path.exists() and path != top and not top.is_relative_to(path):
                yield path


def _names(config: Path) -> list[tuple[str, str]]:
    return [
        (name.decode().lower(), os.fsdecode(value.strip())) for name, value in _NAMED.findall(_read(config))
    ]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_SMALL)
    except OSError:
        return b""
