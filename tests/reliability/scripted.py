"""The scripted server in a process of its own, given one turn's script after another."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from tests.model_server import ModelServer
from tests.model_server.script import Script


class ScriptedServer:
    """Use as a context manager. `url` is where it listens."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        self.url = ""

    def __enter__(self) -> ScriptedServer:
        self._process.start()
        self.url = str(self._pipe.recv())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.send(None)
        self._process.join()

    def play(self, turns: Sequence[Any]) -> None:
        """From now on the model does this."""
        self._pipe.send(list(turns))
        self._pipe.recv()

    def refused(self) -> list[str]:
        """What strict mode has refused since it was last asked."""
        self._pipe.send("refused")
        return list(self._pipe.recv())


def _serve(pipe: Connection) -> None:
    with ModelServer([]) as server:
        pipe.send(server.url)
        while (order := pipe.recv()) is not None:
            if order == "refused":
                pipe.send(server.violations)
                server.forget()
            else:
                server.script = Script(order)
                pipe.send(True)
