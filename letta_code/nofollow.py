"""Opening a file by the very path that was judged: name by name, no link followed on the way.

Between the moment a path is resolved and judged and the moment it is opened, a link may be put in its place.
Whoever judges resolves first; whoever opens comes through here and gets that file or an error. Only for
paths that are resolved already.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


@contextmanager
def folder_of(path: Path, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder that holds `path` (absolute and resolved), for `dir_fd`; it cannot be
    listed. `make`: folders that are missing are made.

    Raises:
        OSError: as opening does; `ELOOP` when there is a link on the way by now.
    """
    handle = os.open("/", _FOLDER)
    try:
        for part in path.parts[1:-1]:
            below = _step(handle, part, make)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def read_bytes(path: Path, most: int) -> bytes:
    """The first `most` bytes of the regular file `path` (absolute and resolved).

    Raises:
        OSError: it cannot be read, is no regular file (`EINVAL`), or a link is on the way (`ELOOP`).
    """
    with folder_of(path) as folder, os.fdopen(open_file(folder, path.name), "rb") as file:
        return file.read(most)


def open_file(folder: int, name: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file `name` in `folder` (a descriptor).

    Raises:
        OSError: as opening does; `EINVAL` when it is no regular file, `ELOOP` when it is a link.
    """
    # O_NONBLOCK: should a fifo take the file's place, open does not wait.
    if not stat.S_ISREG(status_of(folder, name).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    handle = os.open(name, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return handle


def open_folder(path: Path) -> int:
    """A descriptor of the folder `path` (absolute and resolved) that can be listed; the caller closes it.

    Raises:
        OSError: as opening does; `ELOOP` when there is a link on the way by now.
    """
    with folder_of(path) as above:
        if path.name:
            status_of(above, path.name)
        return os.open(
            path.name or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above
        )


def status_of(folder: int, name: str) -> os.stat_result:
    """What `name` in `folder` (a descriptor) is.

    Raises:
        OSError: there is no such name, or (`ELOOP`) it is a link.
    """
    status = os.stat(name or ".", dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return status


def _step(above: int, part: str, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    except NotADirectoryError:
        status_of(above, part)  # a link is told from a file
        raise
    try:
        os.mkdir(part, dir_fd=above)
    except FileExistsError:  # made by another process at this moment
        pass
    return os.open(part, _FOLDER, dir_fd=above)
