"""Standard input of a one-shot run: piped bytes join the prompt, and an endless pipe is not waited for."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable

from letta_code.errors import UsageError

LIMIT = 10_000_000  # bytes
_CHUNK = 65_536


def join_prompt(
    prompt: str | None,
    say: Callable[[str], None],
    *,
    descriptor: int = 0,
    first: float = 3.0,
    idle: float = 10.0,
) -> str:
    """The prompt with what stdin holds. A terminal and /dev/null are not read.

    With a prompt, the first byte is awaited for `first` seconds and each next one for `idle` seconds;
    `say` is told when that was not enough. Without one, stdin is the prompt and is read to its end.

    Raises:
        UsageError: there is nothing but white space, or more than `LIMIT` bytes.
    """
    data = b""
    if _is_readable(descriptor):
        data = (
            _read(descriptor, say, first, idle) if prompt is not None else _read(descriptor, say, None, None)
        )
    text = data.decode("utf-8", "replace").replace("\x00", "\ufffd")
    if prompt is None or not prompt.strip():
        joined = text
    elif text.strip():
        end = "" if text.endswith("\n") else "\n"
        joined = f"{prompt}\n\n<stdin>\n{text}{end}</stdin>"
    else:
        joined = prompt
    if not joined.strip():
        raise UsageError("the prompt is empty", 'give one: letta -p "…", or pipe it in')
    return joined


def _is_readable(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # closed by whoever started us
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read(descriptor: int, say: Callable[[str], None], first: float | None, idle: float | None) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        wait = idle if chunks else first
        ready, _, _ = select.select([descriptor], [], [], wait)
        if not ready:
            what = "no more came" if chunks else "nothing came"
            say(f"letta: {what} on standard input for {wait:g} s; going on without waiting for its end")
            break
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
        if size > LIMIT:
            raise UsageError(
                f"standard input is larger than {LIMIT // 1_000_000} MB",
                "write it to a file and name the file in the prompt",
            )
    return b"".join(chunks)
