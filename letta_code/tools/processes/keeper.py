"""The program that keeps what shell commands start together: `python -I -S keeper.py`, one for a session.

It is run by its path and imports nothing of ours. On standard input it gets requests (`keeping` sends them)
and forks a process for each: the command's keeper. That one starts the command, adopts on Linux whatever the
command leaves behind, however it hides (a cleared environment, a double fork, `setsid`), and ends all of it
when the other end of its line is closed: letta has ended, by whatever means.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

ASK, KILL = 1.0, 5.0
"""Seconds that processes have after SIGTERM, and in which SIGKILL is repeated."""

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


def main() -> None:
    """Serve until letta closes the line."""
    line = socket.socket(fileno=0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a keeper ended
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    while request := _receive(line):
        payload, descriptors = request
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _keep(payload, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _receive(line: socket.socket) -> tuple[bytes, list[int]] | None:
    """One request: its length in eight bytes, folder, number of words, words, environment, separated by
    NUL; with it the descriptors of the command's output and of its line. None: the line was closed."""
    try:
        data, descriptors, _, _ = socket.recv_fds(line, 1 << 16, 2)
        while data and len(data) < 8 + int.from_bytes(data[:8], "big"):
            data += line.recv(1 << 20)
    except OSError:
        return None
    if len(descriptors) != 2:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data[8:], descriptors


def _keep(payload: bytes, output: int, line: int) -> NoReturn:
    """Be the keeper of one command. On its line it says `started` with its pid and whether it adopts, or
    `failed` with an error number; then `exit` with the command's status, and `gone` when nothing is left."""
    code = 0
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        adopts = _adopt()
        command, error = _start(payload, output)
        os.close(output)
        if error:
            _say(line, f"failed {error}")
        else:
            _say(line, f"started {os.getpid()} {int(adopts)}")
            _wait(line, command)
    except BaseException:
        code = 1
        raise
    finally:
        os._exit(code)


def _adopt() -> bool:
    """Become the parent of every orphan below; whether this system can do that."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0) == 0)


def _start(payload: bytes, output: int) -> tuple[int, int]:
    """Start the command in a session of its own; its pid, and the error number when it cannot be run."""
    folder, count, *words = payload.split(b"\0")
    arguments, variables = words[: int(count)], words[int(count) :]
    environment = dict(variable.split(b"=", 1) for variable in variables)
    failed, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *_PYTHON_IGNORES):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(folder)
            os.execve(arguments[0], arguments, environment)
        except OSError as error:
            os.write(told, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(told)
    said = os.read(failed, 16)
    os.close(failed)
    return child, int(said or b"0")


def _wait(line: int, command: int) -> None:
    """Reap until nothing is left. When the line is closed meanwhile, end everything."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    while not _reap(line, command):
        ready, _, _ = select.select([line, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        if line in ready and not os.read(line, 64):
            _end(line, command)
            return
    _say(line, "gone")


def _reap(line: int, command: int) -> bool:
    """Take in who has ended; whether nobody is left."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if child == 0:
            return False
        if child == command:
            _say(line, f"exit {os.waitstatus_to_exitcode(status)}")


def _end(line: int, command: int) -> None:
    began = time.monotonic()
    asked: set[int] = set()
    while not _reap(line, command) and time.monotonic() - began < ASK + KILL:
        kill = time.monotonic() - began > ASK
        for process in _descendants() if os.path.isdir("/proc/self") else [-command]:
            if kill or process not in asked:
                asked.add(process)
                try:
                    os.kill(process, signal.SIGKILL if kill else signal.SIGTERM)
                except OSError:
                    continue  # it ended meanwhile, or is another user's
        time.sleep(0.02)


def _descendants() -> list[int]:
    """Every process below this one, zombies too."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    below = [os.getpid()]
    while below:
        new = children.pop(below.pop(), [])
        found += new
        below += new
    return found


def _say(line: int, words: str) -> None:
    try:
        os.write(line, f"{words}\n".encode())
    except OSError:
        return  # letta has ended


if __name__ == "__main__":
    main()
