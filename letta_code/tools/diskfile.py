"""One file of the person's, as the file tools find, load and replace it.

Every failure is a `ToolError` in words the model can act on. Encodings and permissions are judged
elsewhere.
"""

from __future__ import annotations

import difflib
import errno
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from letta_code.core.tooling import DiffDisplay
from letta_code.errors import ToolError
from letta_code.nofollow import folder_of, open_file, status_of
from letta_code.tools.base import Call, Workspace
from letta_code.tools.encoding import printable

MAX_BYTES = 50_000_000
DISPLAY_CHARACTERS = 100_000


def show(workspace: Workspace, path: Path) -> str:
    """`path` as the model and the person read it: relative inside the project, on one line, and with
    bytes that are not UTF-8 escaped."""
    try:
        path = path.relative_to(workspace.project)
    except ValueError:
        pass
    return show_name(str(path))


def show_name(name: str) -> str:
    """A file name on one line and without undecodable characters."""
    try:
        text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # surrogates that stand for no byte: no file has such a name
        text = name.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\n", "\\n").replace("\r", "\\r")


def locate(workspace: Workspace, file_path: str) -> Path:
    """The absolute path that `file_path` names, every symlink resolved; it need not exist."""
    if not file_path.strip():
        raise ToolError("the path is empty")
    try:
        os.fsencode(file_path)
        if "\0" in file_path:
            raise ToolError("the path contains a NUL character")
        return workspace.absolute(file_path).resolve()
    except UnicodeEncodeError as error:
        raise ToolError("the path contains characters that no file name can have") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a symlink loop, before Python 3.13
        raise ToolError(f"cannot resolve {file_path}: {error}") from error


def located(workspace: Workspace, file_path: str, call: Call) -> Path:
    """The same when the call runs: it must still lead where it led when the call was judged."""
    path = locate(workspace, file_path)
    if call.judged is not None and path not in call.judged:
        raise ToolError(
            f"{show_name(file_path)} leads elsewhere than when this call was judged (a link changed); "
            "nothing was touched. Try again"
        )
    return path


def load(path: Path, name: str) -> bytes | None:
    """The bytes of the regular file `path` (resolved), or None when nothing is there. `name` is for
    messages.

    Raises:
        ToolError: a folder, a fifo, a device, too large, or not readable.
    """
    try:
        with folder_of(path) as folder:
            return _load(folder, path.name, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed("read", name, error) from error


def _load(folder: int, leaf: str, name: str) -> bytes:
    mode = status_of(folder, leaf).st_mode
    if stat.S_ISDIR(mode):
        raise ToolError(f"{name} is a folder: list it with LS or Glob")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{name} is not a regular file (a pipe, socket or device)")
    with os.fdopen(open_file(folder, leaf), "rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ToolError(
            f"{name} is larger than {MAX_BYTES // 1_000_000} MB: look into it with Grep, or with Bash "
            "(head, tail, sed -n)"
        )
    return raw


def missing(path: Path, name: str) -> ToolError:
    """The error for a file that is not there, with names that are."""
    folder = path.parent
    while not os.path.isdir(folder):  # unlike Path.is_dir it never raises
        folder = folder.parent
    if folder != path.parent:
        there = show_name(str(folder))
        return ToolError(f"{name} does not exist; the deepest folder of it that does is {there}")
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    folded = {entry.casefold(): entry for entry in names}
    close = difflib.get_close_matches(path.name.casefold(), list(folded), n=3, cutoff=0.6)
    hint = ", ".join(show_name(folded[entry]) for entry in close)
    return ToolError(f"{name} does not exist" + (f"; did you mean {hint} (same folder)?" if hint else ""))


def failed(verb: str, name: str, error: OSError) -> ToolError:
    """An operating system error as the model should read it."""
    reason = error.strerror or str(error)
    if error.errno == errno.ELOOP:
        reason = "a link took the place of a part of the path"
    if isinstance(error, NotADirectoryError | FileExistsError):
        reason = "a part of the path is a file, not a folder"
    return ToolError(f"cannot {verb} {name}: {reason}")


def save(path: Path, raw: bytes, name: str, expected: bytes | None, *, shared: bool = False) -> str:
    """Make `raw` the content of `path` (resolved) in one step, keeping mode, owner and attributes; returns
    a note for the model, mostly empty.

    `expected` is the content the new one was made from, None for a file that was not there: when the
    disk says otherwise by now, nothing is written. Missing parent folders are made. A file with other
    names (hard links) changes under all of them only when the person agreed (`shared`); else the others
    keep what they had. Where a rename would lose an owner that is not us or is not possible, the file is
    rewritten in place.

    Raises:
        ToolError: refused or failed; unless the rewrite in place broke off, the old content is there.
    """
    try:
        with folder_of(path, make=expected is None) as folder:
            place = _Target(folder, path.name, name, shared)
            if place.content() != expected:
                raise ToolError(
                    f"{name} changed on disk at this very moment; nothing was written. Read it again."
                )
            return place.write(raw, None if expected is None else status_of(folder, path.name))
    except FileNotFoundError as error:
        raise ToolError(f"{name} went away at this very moment; nothing was written.") from error
    except OSError as error:
        raise failed("write", name, error) from error


@dataclass(frozen=True, slots=True)
class _Target:
    """A file that is about to be written: its folder (a descriptor), its name there, and for messages."""

    folder: int
    leaf: str
    name: str
    shared: bool

    def content(self) -> bytes | None:
        """What it holds now."""
        try:
            return _load(self.folder, self.leaf, self.name)
        except FileNotFoundError:
            return None

    def write(self, raw: bytes, status: os.stat_result | None) -> str:
        """Replace it, or rewrite it where it has to stay the same file."""
        if status is None:
            self._replace(raw, None)
            return ""
        others = status.st_nlink - 1
        if (others and self.shared) or not os.access(self.leaf, os.W_OK, dir_fd=self.folder):
            self._rewrite(raw)
        elif self._replace(raw, status) and others:
            return " The file had other names (hard links): they keep the old content."
        return ""

    def _replace(self, raw: bytes, status: os.stat_result | None) -> bool:
        """Put a new file in its place; False when it was rewritten instead."""
        temporary = f".letta-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(temporary, flags, 0o666, dir_fd=self.folder)
        except PermissionError:
            if status is None:
                raise
            self._rewrite(raw)
            return False
        moved = False
        try:
            with os.fdopen(handle, "wb") as file:
                if status is not None and not self._take_over(file.fileno(), status):
                    self._rewrite(raw)
                    return False
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.leaf, src_dir_fd=self.folder, dst_dir_fd=self.folder)
            moved = True
        finally:
            if not moved:
                os.unlink(temporary, dir_fd=self.folder)
        return True

    def _take_over(self, handle: int, status: os.stat_result) -> bool:
        """Give the new file the old one's owner, mode and extended attributes; False when not allowed
        to."""
        try:
            mine = os.fstat(handle)
            if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
                os.fchown(handle, status.st_uid, status.st_gid)
            os.fchmod(handle, stat.S_IMODE(status.st_mode))
            if hasattr(os, "listxattr"):
                old = open_file(self.folder, self.leaf)
                try:
                    for attribute in os.listxattr(old):
                        os.setxattr(handle, attribute, os.getxattr(old, attribute))
                finally:
                    os.close(old)
        except OSError as error:
            return error.errno in (errno.ENOTSUP, errno.ENOSYS)
        return True

    def _rewrite(self, raw: bytes) -> None:
        handle = open_file(self.folder, self.leaf, os.O_WRONLY)
        with os.fdopen(handle, "wb") as file:
            if os.fstat(handle).st_nlink > 1 and not self.shared:
                raise ToolError(
                    f"{self.name} has other names (hard links), which would change with it, and cannot be "
                    "replaced by a file of its own; nothing was written"
                )
            file.write(raw)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())


def diff_display(name: str, before: str | None, after: str) -> DiffDisplay:
    """The change for the person: whole texts, or for large files the changed part with a few lines
    around it."""
    old, new = before or "", after
    if len(old) + len(new) > DISPLAY_CHARACTERS:
        old, new = _changed_part(old, new)
    return DiffDisplay(name, None if before is None else printable(old), printable(new))


def _changed_part(old: str, new: str, context: int = 3) -> tuple[str, str]:
    a, b = old.splitlines(keepends=True), new.splitlines(keepends=True)
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    tail = 0
    while tail < min(len(a), len(b)) - start and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    first, last = max(0, start - context), max(0, tail - context)
    return _bounded("".join(a[first : len(a) - last])), _bounded("".join(b[first : len(b) - last]))


def _bounded(text: str) -> str:
    limit = DISPLAY_CHARACTERS // 2
    return text if len(text) <= limit else text[:limit] + f"\n[{len(text) - limit:,} more characters]\n"
