"""Looking at and replacing the person's files without ever following a symlink.

A path was resolved when it was changed. Whatever of it is a symlink by now was swapped in since, so all
goes through `letta_code.nofollow`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from letta_code.nofollow import folder_of, open_file, open_folder
from letta_code.undo.states import ABSENT, Kind, State

HASHED = 50_000_000
"""Bytes of the largest file that is read to be compared; the file tools change no larger one."""


class Blocked(Exception):
    """A file was left as it is; the text says why, for the person."""


def look(path: str) -> tuple[State, bytes]:
    """What is at `path` now, and the bytes of a file. Never raises: what cannot be read is a state."""
    try:
        with folder_of(Path(path)) as folder:
            return _look(folder, os.path.basename(path))
    except FileNotFoundError:
        return ABSENT, b""
    except OSError as error:
        kind: Kind = "behind" if error.errno in (errno.ELOOP, errno.ENOTDIR) else "unreadable"
        return State(kind, problem=_words(error)), b""


def held(path: str) -> State:
    """The file or symlink at `path`: absent also where a folder is, or where a part of the path is none."""
    now, _ = look(path)
    return ABSENT if now.kind in ("folder", "behind") else now


def entries(folder: str) -> list[str] | None:
    """The paths of what is in a folder; None when it cannot be listed."""
    try:
        handle = open_folder(Path(folder))
        try:
            return [os.path.join(folder, name) for name in os.listdir(handle)]
        finally:
            os.close(handle)
    except OSError:
        return None


def missing_folders(path: Path) -> tuple[str, ...]:
    """The folders that have to be made before `path` can be, outermost first."""
    found: list[str] = []
    for folder in path.parents:
        if folder.is_dir() and not folder.is_symlink():
            break
        found.insert(0, str(folder))
    return tuple(found)


def _look(folder: int, name: str) -> tuple[State, bytes]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return State("link", target=os.readlink(name, dir_fd=folder)), b""
    if stat.S_ISDIR(status.st_mode):
        return State("folder", problem="it is a folder now"), b""
    if not stat.S_ISREG(status.st_mode):
        return State("other", problem="it is a pipe, socket or device"), b""
    if status.st_size > HASHED:
        words = f"larger than {HASHED // 1_000_000} MB"
        return State("file", mode=mode, size=status.st_size, problem=words), b""
    with os.fdopen(open_file(folder, name), "rb") as file:
        raw = file.read(HASHED + 1)
    return State("file", hashlib.sha256(raw).hexdigest(), mode, len(raw), shared=status.st_nlink > 1), raw


def put_file(path: str, raw: bytes, mode: int, expected: State, temporary: str, shared: bool) -> None:
    """Make `path` a file with `raw` and `mode`, in one step where that is possible; missing folders are
    made, owner and extended attributes of a file that is there are kept. A file that was `shared` by
    several names (hard links) changes under all of them. `temporary` is a name in the same folder, which
    is left there only when we die.

    Raises:
        Blocked: by now `path` does not hold `expected`, or cannot be written; nothing was changed.
    """
    with _opened(path, make=True) as (folder, name):
        status = _still(folder, name, expected)
        if status is None or not stat.S_ISREG(status.st_mode):
            _replace(folder, name, raw, mode, None, temporary)
        elif shared and status.st_nlink > 1:
            _rewrite(folder, name, raw, mode)
        else:
            _replace(folder, name, raw, mode, status, temporary)


def put_link(path: str, target: str, expected: State, temporary: str) -> None:
    """Make `path` a symlink to `target`. Raises `Blocked` as `put_file` does."""
    with _opened(path, make=True) as (folder, name):
        _still(folder, name, expected)
        os.symlink(target, temporary, dir_fd=folder)
        try:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise


def remove(path: str, expected: State) -> None:
    """Remove the file or symlink `path`. Raises `Blocked` as `put_file` does."""
    with _opened(path) as (folder, name):
        _still(folder, name, expected)
        os.unlink(name, dir_fd=folder)


def discard(path: str) -> None:
    """Remove a temporary file, if it is there."""
    with contextlib.suppress(Blocked), _opened(path) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(path: str) -> None:
    """Remove the folder `path` if it is empty; else it stays."""
    with contextlib.suppress(Blocked), _opened(path) as (folder, name):
        os.rmdir(name, dir_fd=folder)


def set_mode(path: str, mode: int, expected: State) -> None:
    """Give a file permission bits. Raises `Blocked` as `put_file` does."""
    with _opened(path) as (folder, name):
        _still(folder, name, expected)
        handle = open_file(folder, name)
        try:
            os.fchmod(handle, mode)
        finally:
            os.close(handle)


@contextmanager
def _opened(path: str, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder of `path` and its name there; what the system refuses becomes `Blocked`."""
    try:
        with folder_of(Path(path), make=make) as folder:
            yield folder, os.path.basename(path)
    except OSError as error:
        raise Blocked(_words(error)) from error


def _words(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a link has taken the place of a part of its path"
    if error.errno == errno.ENOTDIR:
        return "a part of its path is a file now"
    return (error.strerror or str(error)).lower()


def _still(folder: int, name: str, expected: State) -> os.stat_result | None:
    """The status of what is there, None when nothing is; `Blocked` when it is not `expected`."""
    try:
        now, _ = _look(folder, name)
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        now, status = ABSENT, None
    if not now.same(expected):
        raise Blocked("it changed at this very moment")
    return status


def _replace(
    folder: int, name: str, raw: bytes, mode: int, status: os.stat_result | None, temporary: str
) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(temporary, flags, 0o600, dir_fd=folder)
    except PermissionError:
        if status is None:
            raise
        _rewrite(folder, name, raw, mode)
        return
    try:
        with os.fdopen(handle, "wb") as file:
            if status is not None and not _take_over(file.fileno(), folder, name, status):
                _rewrite(folder, name, raw, mode)
                return
            os.fchmod(file.fileno(), mode)
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def _take_over(handle: int, folder: int, name: str, status: os.stat_result) -> bool:
    """Give the new file the old one's owner and extended attributes; False when not allowed to."""
    try:
        mine = os.fstat(handle)
        if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(handle, status.st_uid, status.st_gid)
        if hasattr(os, "listxattr"):
            old = open_file(folder, name)
            try:
                for attribute in os.listxattr(old):
                    os.setxattr(handle, attribute, os.getxattr(old, attribute))
            finally:
                os.close(old)
    except OSError as error:
        return error.errno in (errno.ENOTSUP, errno.ENOSYS)
    return True


def _rewrite(folder: int, name: str, raw: bytes, mode: int) -> None:
    """Write in place: the only way that keeps hard links, an owner that is not us, or works in a folder
    where nothing can be made. What was there is put back when the disk is full."""
    with os.fdopen(open_file(folder, name, os.O_RDWR), "r+b", buffering=0) as file:
        old = file.readall()
        try:
            _overwrite(file, raw)
        except OSError:
            _overwrite(file, old)
            raise
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != mode:
            with contextlib.suppress(PermissionError):
                os.fchmod(file.fileno(), mode)


def _overwrite(file: FileIO, raw: bytes) -> None:
    file.seek(0)
    written = 0
    while written < len(raw):
        written += file.write(raw[written:])
    file.truncate()
    os.fsync(file.fileno())
