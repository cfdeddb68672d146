"""One request over HTTP, the same for every dialect: open it through the SDK, read its events, bound
every wait, and turn whatever breaks into a `ModelError`. What the events mean is the adapters' matter.
"""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from letta_code.core.messages import Usage
from letta_code.errors import ModelError, UsageError
from letta_code.models.base import Completed, ModelInfo, ModelPart, ModelRequest
from letta_code.models.endpoint import Endpoint
from letta_code.models.failures import from_event, from_exception, not_an_answer
from letta_code.models.sse import EVENT_LIMIT, read_events

if TYPE_CHECKING:
    import httpx2

IDLE_SECONDS = 300.0
LOCAL_IDLE_SECONDS = 900.0
"""A local model may need minutes to read a long prompt before its first token."""
_DRAIN_SECONDS = 0.25
_ANSWER = 512 * 1024 * 1024  # bytes; far above any window's worth of events
_PAGE = 8192  # bytes
_ODD = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""What an answer raises that is not shaped as its dialect says."""
_MOST_TOKENS = 10**12
_EVENTS = re.compile(rb"(data|event|id|retry)?:")


def idle_seconds(endpoint: Endpoint, environment: Mapping[str, str]) -> float:
    """How long a server may be silent: `LETTA_STREAM_IDLE_SECONDS`, or a default by place.

    Raises:
        UsageError: the variable is not a positive number.
    """
    text = environment.get("LETTA_STREAM_IDLE_SECONDS", "").strip()
    if not text:
        return LOCAL_IDLE_SECONDS if endpoint.loopback else IDLE_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86_400:
        raise UsageError(
            f"LETTA_STREAM_IDLE_SECONDS={text[:40]!r} is not a number of seconds", "for example 300"
        )
    return seconds


def http_client(endpoint: Endpoint, idle: float, connect: float = 15.0) -> httpx2.AsyncClient:
    """Our own client for `endpoint`: no redirect to another host, no proxy for this machine, bounded waits
    (`idle` and `connect`, in seconds).

    Raises:
        ModelError: the environment names certificates that are none, or a proxy that is none.
    """
    import httpx2

    try:
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(idle, connect=connect),
            trust_env=not endpoint.loopback,
            follow_redirects=False,
            # Loading certificates costs more than the rest of a request, and nothing here would use them.
            verify=not (endpoint.loopback and endpoint.base_url.startswith("http:")),
        )
    except OSError as error:
        raise ModelError(
            "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read",
            "untrusted",
            hint="it must name certificates in PEM form; without it those of the system count",
        ) from error
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise ModelError(
            "the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names cannot be used",
            "no_model",
            hint="it must be http://HOST:PORT or https://HOST:PORT; SOCKS proxies are not supported",
        ) from error


def transport_errors() -> tuple[type[Exception], ...]:
    """What may break below an SDK."""
    import anyio
    import h11
    import httpcore2
    import httpx2

    return (
        httpx2.HTTPError,
        httpx2.StreamError,
        httpx2.InvalidURL,
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        h11.ProtocolError,
        OSError,
        json.JSONDecodeError,
        UnicodeDecodeError,
        anyio.BrokenResourceError,
    )


class Reply(ABC):
    """A message while it arrives."""

    finished = False
    """The server said that the message is complete."""

    @abstractmethod
    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelPart]:
        """Take one event; give what can be shown of it."""

    @abstractmethod
    def whole(self, answer: Mapping[str, Any]) -> Iterable[ModelPart]:
        """Take an answer that was not streamed."""

    def ended(self) -> None:  # noqa: B027
        """The stream closed; a dialect whose last event is optional may call that finished."""

    @abstractmethod
    def completed(self) -> Completed:
        """The message, once `finished`."""


class WireModel(ABC):
    """What the adapters share. One client, made at the first request, for the life of the model."""

    def __init__(self, info: ModelInfo, endpoint: Endpoint, idle: float) -> None:
        self._info = info
        self._endpoint = endpoint
        self._idle = idle
        self._http: httpx2.AsyncClient | None = None
        self._errors: tuple[type[Exception], ...] = ()

    @property
    def info(self) -> ModelInfo:
        """What is known about the model."""
        return self._info

    @abstractmethod
    def _connect(self, http: httpx2.AsyncClient) -> type[Exception]:
        """Make the SDK's client on `http`; return the class all its errors descend from."""

    @abstractmethod
    def _body(self, request: ModelRequest) -> dict[str, Any]:
        """The parameters of `request`."""

    @abstractmethod
    def _open(self, body: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
        """Send the parameters; the context is the SDK's streaming response."""

    @abstractmethod
    def _reply(self, request: ModelRequest) -> Reply:
        """An empty reply to `request`."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Send `request` and yield its parts; see `models.base.Model`."""
        if self._http is None:
            self._http, self._errors = self._load()
        body, reply = self._body(request), self._reply(request)
        async with aclosing(self._parts(body, reply)) as parts:
            async for part in parts:
                yield part
        if not reply.finished:
            raise ModelError(
                f"{self._endpoint.provider}: the answer ended before it was complete", "broken_stream"
            )
        try:
            completed = reply.completed()
        except _ODD as error:
            raise self._not_understood(error) from error
        yield await self._settled(completed, body)

    async def _settled(self, completed: Completed, body: Mapping[str, Any]) -> Completed:
        """The last look at a finished message; adapters may add notes."""
        return completed

    async def close(self) -> None:
        """Free the connection."""
        if self._http is not None:
            await self._http.aclose()

    def _load(self) -> tuple[httpx2.AsyncClient, tuple[type[Exception], ...]]:
        http = http_client(self._endpoint, self._idle)
        return http, (self._connect(http), *transport_errors())

    async def _parts(self, sent: dict[str, Any], reply: Reply) -> AsyncGenerator[ModelPart, None]:
        answering = False
        try:
            async with AsyncExitStack() as opened:
                async with asyncio.timeout(self._idle * 3):  # headers, or an error's body, may drip too
                    response = await opened.enter_async_context(self._open(sent))
                answering = True
                http: httpx2.Response = response.http_response
                said = http.headers.get("content-type", "").split(";")[0]
                body = await opened.enter_async_context(aclosing(http.aiter_bytes()))
                async with aclosing(self._events(body, said, reply)) as events:
                    async for event in events:
                        for part in event:
                            yield part
        except self._errors as error:
            if reply.finished:
                return
            raise from_exception(error, self._endpoint, answering=answering) from error
        except _ODD as error:
            raise self._not_understood(error) from error

    def _not_understood(self, error: Exception) -> ModelError:
        return ModelError(
            f"{self._endpoint.provider}: the answer cannot be understood ({error})", "broken_stream"
        )

    async def _events(
        self, body: AsyncIterator[bytes], said: str, reply: Reply
    ) -> AsyncGenerator[Iterable[ModelPart], None]:
        async with asyncio.timeout(self._idle * 3):
            start = await _start(body)
        if start[:1] == b"<":
            raise not_an_answer(await _rest(start, body, _PAGE), self._endpoint)
        if start[:1] in (b"{", b"[") or ("json" in said and not _EVENTS.match(start)):
            async with asyncio.timeout(self._idle * 3):
                answer = json.loads(await _rest(start, body, EVENT_LIMIT))
            self._refuse_errors(answer)
            yield reply.whole(answer)
            return
        async with aclosing(read_events(_joined(start, body))) as events:  # type: ignore[type-var]
            # Bytes are bounded by the client's read timeout; this bounds what only keeps the connection
            # alive: comments, pings, the same event again and again.
            clock = asyncio.get_running_loop().time
            deadline, before, finished = clock() + self._idle * 3, "", False
            while True:
                if reply.finished and not finished:
                    deadline, finished = clock() + _DRAIN_SECONDS, True
                async with asyncio.timeout_at(deadline):
                    event = await anext(events, None)
                if event is None:
                    reply.ended()
                    return
                name, text = event[0], event[1].strip()
                if finished or not text or name == "ping":
                    continue
                if text != before:
                    deadline, before = clock() + self._idle * 3, text
                data = {"type": "[DONE]"} if text == "[DONE]" else json.loads(text)
                if isinstance(data, dict):
                    self._refuse_errors(data, named=name == "error")
                    yield reply.feed(data)

    def _refuse_errors(self, data: Mapping[str, Any], *, named: bool = False) -> None:
        if named or data.get("type") == "error" or (data.get("error") and "type" not in data):
            raise from_event(data, self._endpoint)


async def _start(body: AsyncIterator[bytes]) -> bytes:
    """The first bytes of an answer that say something; servers tell its kind wrongly in their headers."""
    start = b""
    while not start and (chunk := await anext(body, None)) is not None:
        start = chunk.lstrip(b"\xef\xbb\xbf \t\r\n")
    return start


async def _rest(start: bytes, body: AsyncIterator[bytes], limit: int) -> bytes:
    """All of an answer, cut soon after `limit` bytes."""
    chunks, size = [start], len(start)
    while size <= limit and (chunk := await anext(body, None)) is not None:
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


async def _joined(start: bytes, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start
    size = len(start)
    async for chunk in body:
        size += len(chunk)
        if size > _ANSWER:
            raise ValueError("it does not end")
        yield chunk


def number(data: object, *path: str) -> int:
    """The count of tokens at `path` in nested objects; 0 where there is none that can be."""
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return int(data) if isinstance(data, int | float) and 0 < data < _MOST_TOKENS else 0


def openai_usage(usage: object, prompt: str, answer: str) -> Usage:
    """Usage as both OpenAI dialects give it; `prompt` and `answer` are their names for the two counts."""
    details = f"{prompt}_tokens_details"
    read, write = number(usage, details, "cached_tokens"), number(usage, details, "cache_write_tokens")
    total = number(usage, f"{prompt}_tokens")
    return Usage(max(0, total - read - write), number(usage, f"{answer}_tokens"), read, write)


def with_window(info: ModelInfo, window: int) -> ModelInfo:
    """`info` with the window that the server itself reports."""
    return replace(info, window=window, max_output=min(info.max_output, max(256, window // 2)))
