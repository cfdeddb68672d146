"""Files that must survive a crash: atomic writes, durable appends, private folders, locks.

For our own data only; the tools that edit a person's files have their own rules.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from letta_code.errors import StorageError


def private_folder(path: Path) -> Path:
    """Make `path` and its parents (0700) where they are missing.

    Raises:
        StorageError: it cannot be made (read-only home, a file in the way, …).
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the folder {path}: {error.strerror}",
            "check its owner and free space, or set LETTA_HOME to a folder you can write",
        ) from error
    return path


def write_atomically(path: Path, data: bytes, mode: int = 0o600, durable: bool = True) -> None:
    """Replace the content of `path` by `data`: a reader sees all of the old or all of the new. What is not
    `durable` does not wait for the disk: after a power cut the file may be damaged.

    Raises:
        StorageError: it cannot be written; the old content is untouched.
    """
    private_folder(path.parent)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise StorageError(
            f"cannot write {path}: {error.strerror}", "check the disk's free space and the folder's owner"
        ) from error


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, timeout: float, busy: str, hint: str = "") -> Iterator[None]:
    """Hold the lock file `path` while the block runs; the operating system frees it when we die.

    `timeout` is in seconds; 0 does not wait.

    Raises:
        StorageError: `busy` and `hint` as given, when another process holds it that long; or the lock
            file cannot be made.
    """
    private_folder(path.parent)
    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(timeout=timeout, poll_interval=0.005)
    except Timeout as error:
        raise StorageError(busy, hint) from error
    except OSError as error:
        raise StorageError(
            f"cannot lock {path}: {error.strerror}", "check the disk's free space and the folder's owner"
        ) from error
    try:
        yield
    finally:
        lock.release()
