"""Runs the real `letta` with its own home: in a process of its own, or in this one, which is much cheaper.

A `Letta` that is called forks a warm process (`warm`); `command` and `start` begin with a new interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

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
        request = {"words": words, "environment": self.variables(env), "folder": str(cwd or self.project)}
        with socket.socket(socket.AF_UNIX) as connection, ThreadPoolExecutor(3) as hands:
            connection.settimeout(timeout)
            connection.connect(warm_server())
            pipes = [os.pipe() for _ in range(3)]
            streams = [pipes[0][0], pipes[1][1], pipes[2][1]]
            message = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(connection, [message], streams)
            connection.sendall(message[sent:])
            for stream in streams:
                os.close(stream)
            hands.submit(_feed, pipes[0][1], data)
            out, err = hands.submit(_drain, pipes[1][0]), hands.submit(_drain, pipes[2][0])
            code = int(connection.recv(16))
        return Done(code, out.result(), err.result())

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start it and leave it running; the caller ends it."""
        return subprocess.Popen(
            self.command(*words),
            cwd=self.project,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


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
        "    sys.exit(int(connection.recv(16)))\n"
    )
    path.chmod(0o700)


def _feed(stream: int, data: bytes | None) -> None:
    with open(stream, "wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):
        pipe.write(data or b"")


def _drain(stream: int) -> str:
    with open(stream, "rb") as pipe:
        return pipe.read().decode("utf-8", "replace")


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
