"""Runs the real `letta` with its own home: in a process of its own, or in this one, which is much cheaper.

A `Letta` that is called or started forks a warm process (`warm`); `command` begins with a new interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import pytest

from letta_code.cli.entry import run

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, decoded."""
        return json.loads(self.out)


class Running:
    """A program in a process that the warm server forked: what tests need of a `Popen`.

    Standard output and error are pipes to read from, unless `stdout` says where output goes; `terminal` is a
    descriptor that becomes all three streams and the controlling terminal.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        program: str = "letta_code.__main__",
        stdin: int | None = None,
        stdout: int | None = None,
        terminal: int | None = None,
    ) -> None:
        request = {
            "program": program,
            "words": words,
            "environment": environment,
            "folder": str(folder),
            "terminal": terminal is not None,
        }
        self.stdout: BinaryIO | None = None
        self.stderr: BinaryIO | None = None
        self.returncode: int | None = None
        self._door = socket.socket(socket.AF_UNIX)
        self._door.connect(warm_server())
        with contextlib.ExitStack() as ours:
            if terminal is not None:
                streams = [terminal] * 3
            else:
                if stdin is None:
                    stdin = ours.enter_context(open(os.devnull, "rb")).fileno()
                if stdout is None:
                    self.stdout, stdout = _pipe(ours)
                self.stderr, stderr = _pipe(ours)
                streams = [stdin, stdout, stderr]
            message = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(self._door, [message], streams)
            self._door.sendall(message[sent:])
        self._answers = self._door.makefile("rb")
        self.pid = int(self._answers.readline())

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self.wait()

    def _close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    def send_signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """As `send_signal`, with the signal that nobody can refuse."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, minus the signal if one ended it.

        Raises:
            TimeoutError: it did not end in time.
        """
        if self.returncode is None:
            self._door.settimeout(timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._door.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """All that it prints, once it has ended."""
        assert self.stdout is not None
        assert self.stderr is not None
        with ThreadPoolExecutor(2) as hands:
            out, err = hands.submit(self.stdout.read), hands.submit(self.stderr.read)
            try:
                self.wait(timeout)
            except TimeoutError:
                self.kill()
                raise
        self._close()
        return out.result(), err.result()


def _pipe(theirs: contextlib.ExitStack) -> tuple[BinaryIO, int]:
    """A pipe: our end to read, and the other one, which `theirs` closes."""
    reader, writer = os.pipe()
    theirs.callback(os.close, writer)
    return open(reader, "rb"), writer


@dataclass(slots=True)
class Letta:
    """`letta` with everything of it below one temporary folder."""

    home: Path
    project: Path
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a run: nothing of ours leaks in."""
        base = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home.parent),
            "LETTA_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "LETTA_RETRY_BASE_SECONDS": "0.01",
        }
        return base | self.environment | dict(more or {})

    def command(self, *words: str) -> list[str]:
        """The words that start it cold."""
        return [sys.executable, "-W", "error", "-m", "letta_code", *words]

    def __call__(
        self,
        *words: str,
        stdin: str | bytes | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 50,
    ) -> Done:
        """Run it to its end. Without `stdin` its standard input is empty, and no terminal."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        reader, writer = os.pipe()
        running = Running(words, cwd or self.project, self.variables(env), stdin=reader)
        os.close(reader)
        with running, ThreadPoolExecutor(1) as hands:
            hands.submit(_feed, writer, data)
            out, err = running.communicate(timeout)
        assert running.returncode is not None
        return Done(running.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def start(self, *words: str) -> Running:
        """Start it and leave it running; the caller ends it."""
        return Running(words, self.project, self.variables())


class Here:
    """`letta` in this process, with the environment and the folder that a process of its own would have."""

    def __init__(self, letta: Letta, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.letta = letta
        self._patch = patch
        self._capture = capture

    def __call__(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
        variables = self.letta.variables(env)
        with self._patch.context() as patch:
            patch.setattr(sys, "excepthook", sys.excepthook)  # `run` replaces it
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.chdir(cwd or self.letta.project)
            code = run(words)
        out, err = self._capture.readouterr()
        return Done(code, out, err)


def warm_command(path: Path) -> None:
    """Make `path` an executable that is `letta` for a shell: it hands its streams to the warm server."""
    path.write_text(
        f"#!{sys.executable} -IS\n"
        "import json, os, socket, sys\n"
        "request = {'words': sys.argv[1:], 'environment': dict(os.environ), 'folder': os.getcwd()}\n"
        "with socket.socket(socket.AF_UNIX) as connection:\n"
        f"    connection.connect({warm_server()!r})\n"
        "    socket.send_fds(connection, [json.dumps(request).encode() + b'\\n'], [0, 1, 2])\n"
        "    sys.exit(int(connection.makefile().read().split()[1]))\n"
    )
    path.chmod(0o700)


def _feed(stream: int, data: bytes | None) -> None:
    with open(stream, "wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):
        pipe.write(data or b"")


@cache
def warm_server() -> str:
    """The socket of this test process's server of `letta` processes; see `warm`."""
    folder = tempfile.mkdtemp(prefix="letta-warm-")
    path = f"{folder}/door"
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.cli.warm", path],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def end() -> None:
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    assert server.stdout.readline() == b"ready\n"
    return path
