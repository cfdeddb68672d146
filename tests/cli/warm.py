"""Starts `letta` processes cheaply for the tests: a process that has imported everything once, with no home
and no repository, and forks for each run. `python -W error -m tests.cli.warm SOCKET` serves until its
standard input ends.

What a run gets is its own: process id, environment, folder, streams, terminal, exit code. What it does not
pay is the import of two SDKs. Tests of what is imported, of locales and of what the starting process hands
over (ignored signals, limits, a parent that dies) start cold instead.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import termios
import threading
from types import FrameType
from typing import NoReturn

import letta_code
from letta_code.core.codec import load_event
from letta_code.tools.base import Arguments, compact_schema

MOST = 1 << 20
_MORE = (
    *("letta_code.__main__", "tests.frontends.fake", "typer._adapters", "typer._click.decorators"),
    # What a first request imports.
    *("anthropic", "openai", "openai.resources.chat", "openai.resources.responses"),
    *("httpcore2", "h11", "anyio._backends._asyncio", "truststore", "importlib.readers"),
)


def preload() -> None:
    """Import the whole program; modules that can only be run are left out."""
    for found in pkgutil.walk_packages(letta_code.__path__, "letta_code."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for more in _MORE:
        importlib.import_module(more)
    # What is made once in a process: schemas and decoders.
    for arguments in Arguments.__subclasses__():
        compact_schema(arguments)
    with contextlib.suppress(ValueError):
        load_event({})
    gc.collect()
    gc.freeze()


def become(request: dict[str, object], streams: list[int]) -> NoReturn:
    """In the forked process: be the program, `letta` if nothing else is said, that the request wants."""
    words, environment, folder = request["words"], request["environment"], request["folder"]
    program = sys.modules[str(request.get("program", "letta_code.__main__"))]
    assert isinstance(words, list)
    assert isinstance(environment, dict)
    if request.get("terminal"):
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, (name, stream) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        os.dup2(stream, number)
        os.close(stream)
        old = getattr(sys, name)
        lines = name == "stderr"
        new = os.fdopen(
            number, old.mode, 1 if lines else -1, encoding=old.encoding, errors=old.errors, closefd=False
        )
        setattr(sys, name, new)
    os.chdir(str(folder))
    # Python itself sets this one when the locale is C; the children of a run inherit it.
    kept = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
    os.environ.clear()
    os.environ.update(kept | environment)
    sys.argv = [str(program.__file__), *words]
    code: object = 1
    try:
        code = program.main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        if (failed := sys.exc_info()[1]) is not None:
            sys.excepthook(type(failed), failed, failed.__traceback__)
        # Tearing down what the server has imported would cost more than the run itself.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def serve(path: str) -> None:
    """Fork for each connection, and tell on it the process id and, in a line of its own, the exit code."""
    preload()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    running: dict[int, socket.socket] = {}

    def ended(_number: int, _frame: FrameType | None) -> None:
        os.write(woken, b"!")

    signal.signal(signal.SIGCHLD, ended)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(64)
        os.write(1, b"ready\n")
        while True:
            ready, _, _ = select.select([door.fileno(), wake, 0], [], [])
            if 0 in ready:
                return
            if wake in ready:
                os.read(wake, 4096)
                _tell(running)
            if door.fileno() not in ready:
                continue
            connection = door.accept()[0]
            said, streams, _, _ = socket.recv_fds(connection, MOST, 3)
            while not said.endswith(b"\n"):
                said += connection.recv(MOST)
            child = os.fork()
            if not child:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (door, connection, *running.values()):
                    one.close()
                os.close(wake)
                os.close(woken)
                become(json.loads(said), streams)
            for stream in streams:
                os.close(stream)
            with contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % child)
            running[child] = connection


def _tell(running: dict[int, socket.socket]) -> None:
    """Answer for every run that has ended."""
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with running.pop(child) as connection, contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve(sys.argv[1])
