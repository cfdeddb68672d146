"""When a file was made, which Python cannot ask of Linux: with the inode it tells a moved folder from a
new one that was given a freed inode."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

_AT_FDCWD = -100
_BTIME = 0x800
_SIZE = 256


def birth(path: Path) -> int | None:
    """Nanoseconds since the epoch; None where the system or the file system does not know."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    seconds = getattr(status, "st_birthtime", None)
    if seconds is not None:
        return int(seconds * 1_000_000_000)
    statx = _statx()
    if statx is None:
        return None
    answer = ctypes.create_string_buffer(_SIZE)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _BTIME, answer) != 0:
        return None
    data = answer.raw
    if not int.from_bytes(data[0:4], sys.byteorder) & _BTIME:
        return None
    # struct statx: stx_btime (seconds, nanoseconds) is at 80 on every architecture.
    seconds_since = int.from_bytes(data[80:88], sys.byteorder, signed=True)
    return seconds_since * 1_000_000_000 + int.from_bytes(data[88:92], sys.byteorder)


@functools.cache
def _statx() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    function.argtypes = [
        ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p,
    ]  # fmt: skip
    function.restype = ctypes.c_int
    made: Callable[..., int] = function
    return made
