"""letta's side of `keeper`: asks it to start commands, and hears how they end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

_PATIENCE = 20.0  # seconds for a start; only a deadline
_NOWHERE = [
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
]


class Kept:
    """A started command, as its keeper tells of it. Every look at it takes in what the keeper said."""

    def __init__(self, line: socket.socket, said: bytes, keeper: int, adopts: bool) -> None:
        self.keeper = keeper
        """The keeper's pid: what the command started is below it, when `adopts`."""
        self.adopts = adopts
        self.line = line
        self._said = said
        self._status: int | None = None
        self._hearing = threading.Lock()
        self._state: Literal["kept", "gone", "lost"] = "kept"
        line.setblocking(False)
        self.hear()

    @property
    def status(self) -> int | None:
        """The command's exit code, negative for a signal; None while it runs."""
        self.hear()
        return self._status

    @property
    def gone(self) -> bool:
        """Whether the keeper has seen all of it end."""
        self.hear()
        return self._state == "gone"

    @property
    def lost(self) -> bool:
        """Whether somebody killed the keeper: then nobody has adopted what it kept."""
        self.hear()
        return self._state == "lost"

    def hear(self) -> None:
        """Take in what the keeper said by now."""
        if not self._hearing.acquire(blocking=False):
            return  # a signal handler or another thread came in between
        try:
            self._hear()
        finally:
            self._hearing.release()

    def _hear(self) -> None:
        if self._state != "kept":
            return
        closed = False
        try:
            while data := self.line.recv(4096):
                self._said += data
            closed = True
        except BlockingIOError:
            pass
        except OSError:
            closed = True
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            word, _, value = line.partition(b" ")
            if word == b"exit":
                self._status = int(value)
            elif word == b"gone":
                self._state = "gone"
        if closed and self._state == "kept":
            self._state = "lost"
            self._status = -signal.SIGKILL if self._status is None else self._status

    def close(self) -> None:
        """Close the line, for good: the keeper, when it lives, ends what is left."""
        self.hear()
        self._state = "gone" if self._state == "kept" else self._state
        self._status = -signal.SIGKILL if self._status is None else self._status
        self.line.close()


class Keeper:
    """The keeper program of a session. It starts with the first command and ends with `close`, or with us."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._pid = 0

    def start(
        self, words: Sequence[bytes], folder: Path, environment: Mapping[str, str], output: int
    ) -> Kept:
        """Start a command in `folder` whose stdout and stderr are `output`; its stdin is empty. The first
        word is the program's absolute path.

        Raises:
            OSError: it cannot be started. ValueError: a word holds a NUL.
        """
        variables = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
        if any(b"\0" in word for word in (*words, *variables)):
            raise ValueError("a NUL character")
        payload = b"\0".join([os.fsencode(folder), str(len(words)).encode(), *words, *variables])
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._send(payload, [output, theirs.fileno()])
            return _started(ours)
        except BaseException:
            ours.close()
            raise

    def close(self) -> None:
        """End the program. Commands that still run are not ended by this; closing their lines does that."""
        if self._line is not None:
            self._line.close()
            self._line = None
            try:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            except (ProcessLookupError, ChildProcessError):
                return  # it was ended by somebody else

    def _send(self, payload: bytes, descriptors: list[int]) -> None:
        try:
            self._request(payload, descriptors)
        except OSError:  # the program was killed: a new one
            self.close()
            self._request(payload, descriptors)

    def _request(self, payload: bytes, descriptors: list[int]) -> None:
        line = self._line or self._open()
        message = len(payload).to_bytes(8, "big") + payload
        sent = socket.send_fds(line, [message[:4096]], descriptors)
        line.sendall(message[sent:])

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, as_file(files("letta_code.tools.processes").joinpath("keeper.py")) as program:
            words = [sys.executable, "-I", "-S", str(program)]
            descriptors = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), *_NOWHERE]
            # Not `subprocess`, whose objects complain when they are not waited for.
            self._pid = os.posix_spawn(words[0], words, os.environ, file_actions=descriptors, setsid=True)
        ours.settimeout(_PATIENCE)
        self._line = ours
        return ours


def _started(line: socket.socket) -> Kept:
    line.settimeout(_PATIENCE)
    said = b""
    while b"\n" not in said:
        data = line.recv(4096)
        if not data:
            raise OSError("its keeper was killed")
        said += data
    first, _, rest = said.partition(b"\n")
    word, *values = first.split()
    if word == b"failed":
        number = int(values[0])
        raise OSError(number, os.strerror(number))
    return Kept(line, rest, int(values[0]), values[1] == b"1")
