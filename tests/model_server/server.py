"""The HTTP server: routes, the record of requests, and the faults.

`ModelServer` is what tests use. It listens on the loopback interface only, speaks HTTP/1.1 with
keep-alive, streams with chunked SSE, and when it closes it ends every connection, also one that stalls.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.model_server.certificate import untrusted_context
from tests.model_server.embeddings import Embeddings
from tests.model_server.handler import Handler
from tests.model_server.rules import Rules
from tests.model_server.script import Script, Turn, load_script
from tests.model_server.wire import Dialect, Issuer


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived. `headers` have lower-case names, `at` is `time.monotonic()`."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes
    at: float
    dialect: Dialect | None


class _Listener(ThreadingHTTPServer):
    """Knows its open connections, so that closing it ends them all and joins their threads."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], owner: ModelServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.owner.note_handler_error()


class ModelServer:
    """A model behind a real socket that plays a script. README.md describes scripts and options.

    Use as a context manager, or `start()` and `close()`.
    """

    def __init__(
        self,
        script: Sequence[Mapping[str, Any]] | str | Path,
        *,
        strict: bool = True,
        loop: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        models: Iterable[str] = ("scripted",),
        reported_window: int | None = None,
        prompt_tokens: int | None = None,
        window: int | None = None,
        reasoning_field: str = "reasoning_content",
        api_key: str | None = None,
        trusted: Iterable[str] = (),
        strict_alternation: bool = False,
        require_reasoning_echo: bool = False,
        tls: bool = False,
        embeddings: Embeddings | None = None,
    ) -> None:
        turns = load_script(Path(script)) if isinstance(script, str | Path) else script
        self.script = Script(turns, loop=loop)
        self.strict = strict
        self.models = tuple(models)
        self.reported_window = reported_window
        self.prompt_tokens = prompt_tokens
        self.window = window
        self.reasoning_field = reasoning_field
        self.api_key = api_key
        self.tls = tls
        self.embeddings = embeddings or Embeddings()
        self.rules = Rules(
            trusted=frozenset(trusted),
            strict_alternation=strict_alternation,
            reasoning_field=reasoning_field if require_reasoning_echo else None,
        )
        self.issuer = Issuer()
        self.closing = threading.Event()
        self.on_request: Callable[[Request], None] = lambda _: None
        self.on_violation: Callable[[str], None] = lambda _: None
        self._address = (host, port)
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._lookups: list[Request] = []
        self._violations: list[str] = []
        self._oversized: list[str] = []
        self._errors: list[BaseException] = []
        self._disconnects = 0
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, or https with `tls`; without `/v1`."""
        host, port = self._running().server_address[:2]
        return f"{'https' if self.tls else 'http'}://{host!s}:{port}"

    @property
    def requests(self) -> list[Request]:
        """Every request to a model so far, also refused ones, in order of arrival."""
        with self._changed:
            return list(self._requests)

    @property
    def lookups(self) -> list[Request]:
        """Every other request: model lists, probes, unknown paths."""
        with self._changed:
            return list(self._lookups)

    @property
    def violations(self) -> list[str]:
        """What strict mode refused, as it was told to the client; also requests beyond the script."""
        with self._changed:
            return list(self._violations)

    @property
    def oversized(self) -> list[str]:
        """Refusals of requests that were larger than `window`."""
        with self._changed:
            return list(self._oversized)

    @property
    def remaining(self) -> list[Turn]:
        """Turns that were not played."""
        return self.script.remaining

    @property
    def disconnects(self) -> int:
        """How many clients left before their answer was complete."""
        with self._changed:
            return self._disconnects

    def forget(self) -> None:
        """Drop the record of requests, lookups and refusals so far."""
        with self._changed:
            self._requests.clear()
            self._lookups.clear()
            self._violations.clear()
            self._oversized.clear()

    def assert_finished(self) -> None:
        """Fail unless every turn was played and no request was refused by the rules."""
        if refused := self.violations:
            raise AssertionError(f"refused: {refused}")
        if left := [item.index for item in self.remaining]:
            raise AssertionError(f"turns that were not played: {left}")

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> list[Request]:
        """The requests, as soon as there are `count`. Raises `TimeoutError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._requests) >= count, timeout):
                raise TimeoutError(f"{len(self._requests)} of {count} requests after {timeout} s")
            return list(self._requests)

    def wait_for_disconnects(self, count: int = 1, timeout: float = 10.0) -> None:
        """Until `count` clients left a stalled or running answer. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._disconnects >= count, timeout):
                raise TimeoutError(f"{self._disconnects} of {count} clients left after {timeout} s")

    def start(self) -> ModelServer:
        """Listen. Requests are answered in background threads."""
        self._listener = _Listener(self._address, self)
        if self.tls:
            self._listener.socket = untrusted_context().wrap_socket(self._listener.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}, name="model-server"
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """End every connection and every thread. Raises what went wrong inside the server, if anything."""
        if self._listener is None or self._thread is None:
            return
        self.closing.set()
        self._listener.shutdown()
        self._listener.end_connections()
        self._listener.server_close()
        self._thread.join()
        self._listener = self._thread = None
        if self._errors:
            raise self._errors[0]

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> _Listener:
        if self._listener is None:
            raise RuntimeError("the model server is not running")
        return self._listener

    def record(
        self, method: str, path: str, headers: Mapping[str, str], raw: bytes, dialect: Dialect | None
    ) -> Request:
        """Keep a request. A body that is no JSON is kept as None."""
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        made = Request(method, path, headers, body, raw, time.monotonic(), dialect)
        with self._changed:
            (self._lookups if dialect is None else self._requests).append(made)
            self._changed.notify_all()
            self.on_request(made)
        return made

    def note_violation(self, message: str) -> None:
        """Keep what was refused."""
        with self._changed:
            self._violations.append(message)
            self.on_violation(message)

    def note_oversized(self, message: str) -> None:
        """Keep what was too long."""
        with self._changed:
            self._oversized.append(message)

    def note_disconnect(self) -> None:
        """Count a client that left early; those that we cut off ourselves do not count."""
        if self.closing.is_set():
            return
        with self._changed:
            self._disconnects += 1
            self._changed.notify_all()

    def note_handler_error(self) -> None:
        """Keep the exception being handled, to be raised by `close`: a bug of this server."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            self._errors.append(error)
