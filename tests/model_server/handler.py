"""One connection: reads requests, finds the turn, sends the reply and breaks it where a fault says so."""

from __future__ import annotations

import dataclasses
import json
import select
import socket
import struct
import time
from collections.abc import Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from tests.model_server import anthropic_wire, catalog, chat_wire, responses_wire
from tests.model_server.script import Fault, Turn
from tests.model_server.wire import Dialect, Frame, Reply, texts, tokens

if TYPE_CHECKING:
    from tests.model_server.server import ModelServer, Request

ROUTES: dict[str, Dialect] = {
    "messages": "anthropic",
    "responses": "openai-responses",
    "chat/completions": "openai-chat",
}
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    409: "Conflict",
    413: "Payload Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
HTML = (
    "<html>\r\n<head><title>{0}</title></head>\r\n<body><center><h1>{0}</h1></center></body>\r\n</html>\r\n"
)


class ClientGone(ConnectionError):
    """The client closed the connection before the answer was complete."""


class Handler(BaseHTTPRequestHandler):
    """Serves one connection, request after request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _model_server(self) -> ModelServer:
        return self.server.owner  # type: ignore[attr-defined, no-any-return]

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the record of requests is the log."""

    def do_GET(self) -> None:
        self._look_up()

    def do_HEAD(self) -> None:
        self._look_up()

    def do_POST(self) -> None:
        owner = self._model_server
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0].rstrip("/")
        dialect = next((kind for end, kind in ROUTES.items() if path in (f"/v1/{end}", f"/{end}")), None)
        request = owner.record("POST", self.path, self._header_map(), raw, dialect)
        if path in ("/v1/embeddings", "/embeddings"):
            self._embed(request.body)
            return
        if dialect is None:
            answer = catalog.post(path, request.body, owner)
            if answer is None:
                self._refuse(404, f"no such path: {self.path}", "openai-chat")
            else:
                self._send_json(200, answer)
            return
        try:
            self._answer(request, dialect)
        except ConnectionError:
            owner.note_disconnect()
            self.close_connection = True

    def _embed(self, body: Any) -> None:
        owner = self._model_server
        if owner.api_key is not None and not self._has_key(owner.api_key):
            return self._refuse(401, "invalid api key", "openai-chat")
        answer = owner.embeddings.answer(body)
        return self._cut("close") if answer is None else self._send_json(*answer)

    def _look_up(self) -> None:
        owner = self._model_server
        owner.record(self.command, self.path, self._header_map(), b"", None)
        answer = catalog.get(self.path.split("?")[0].rstrip("/"), self._header_map(), owner)
        if answer is None:
            self._refuse(404, f"no such path: {self.path}", "openai-chat")
        else:
            self._send_json(200, answer)

    def _header_map(self) -> dict[str, str]:
        return {key.lower(): value for key, value in self.headers.items()}

    def _answer(self, request: Request, dialect: Dialect) -> None:
        owner = self._model_server
        if not isinstance(request.body, dict):
            owner.note_violation("the request body is not a JSON object")
            return self._refuse(400, "the request body is not a JSON object", dialect)
        if owner.api_key is not None and not self._has_key(owner.api_key):
            return self._refuse(401, "invalid x-api-key", dialect)
        if owner.strict:
            problem = owner.rules.check(request.body, request.headers, dialect)
            if problem is not None:
                owner.note_violation(problem)
                return self._refuse(400, problem, dialect)
        size = len(request.raw) // 4  # as usage is told
        if owner.window is not None and size > owner.window:
            problem = _too_long(size, owner.window, dialect)
            owner.note_oversized(problem)
            return self._refuse(400, problem, dialect)
        turn = owner.script.take(*_words(request.body))
        if turn is None:
            problem = f"script is exhausted: no turn is left for request {len(owner.requests)}"
            owner.note_violation(problem)
            return self._refuse(400, problem, dialect)
        return self._play(turn, request, dialect)

    def _has_key(self, key: str) -> bool:
        bearer = self.headers.get("authorization", "")
        return key in (self.headers.get("x-api-key"), bearer.removeprefix("Bearer "))

    def _play(self, turn: Turn, request: Request, dialect: Dialect) -> None:
        owner = self._model_server
        fault = turn.fault
        if turn.echo:
            turn = dataclasses.replace(turn, text=f"You said: {_words(request.body)[0].strip()}")
        if turn.lines is not None:
            said = _words(request.body)[0].splitlines()
            text = "\n".join(dict.fromkeys(line for line in said if turn.lines in line))
            turn = dataclasses.replace(turn, text=text)
        if fault is not None and fault.stall is not None and fault.after is None:
            self._stall(fault.stall)
        if fault is not None and fault.raw is not None:
            self.connection.sendall(fault.raw.encode("latin-1"))
            return self._cut("close")
        if fault is not None and fault.status is not None:
            return self._fail(fault, fault.status, dialect)
        if fault is not None and fault.drop == "before":
            return self._cut("reset" if fault.how == "reset" else "close")
        used = tokens(turn, request.raw, owner.prompt_tokens)
        match dialect:
            case "anthropic":
                reply = anthropic_wire.reply(turn, request.body, used, owner.issuer)
            case "openai-responses":
                reply = responses_wire.reply(turn, request.body, used, owner.issuer)
            case _:
                reply = chat_wire.reply(turn, request.body, used, owner.issuer, owner.reasoning_field)
        owner.rules.issued(turn, reply.body, dialect)
        if request.body.get("stream"):
            return self._stream(turn, reply, dialect)
        return self._send_whole(fault, reply)

    def _fail(self, fault: Fault, status: int, dialect: Dialect) -> None:
        headers = {name: _header(value) for name, value in (fault.headers or {}).items()}
        body = fault.body
        if body is None and status == 502:
            body = HTML.format("502 Bad Gateway")
        if isinstance(body, str):
            return self._send(status, body.encode(), {"content-type": "text/html", **headers})
        if body is None:
            message = fault.message or REASONS.get(status, "Overloaded")
            body = self._error_body(status, message, dialect)
        return self._send(status, json.dumps(body).encode(), {"content-type": "application/json", **headers})

    def _refuse(self, status: int, message: str, dialect: Dialect) -> None:
        self._send_json(status, self._error_body(status, message, dialect))

    def _error_body(self, status: int, message: str, dialect: Dialect) -> dict[str, Any]:
        if dialect == "anthropic":
            return anthropic_wire.error_body(status, message)
        return chat_wire.error_body(status, message)

    def _send_json(self, status: int, body: Any) -> None:
        text = body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()
        kind = "text/plain" if isinstance(body, str) else "application/json"
        self._send(status, text, {"content-type": kind})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        head = _head(status, {**headers, "content-length": str(len(data))})
        self.connection.sendall(head if self.command == "HEAD" else head + data)

    def _send_whole(self, fault: Fault | None, reply: Reply) -> None:
        data = json.dumps(reply.body, ensure_ascii=False).encode()
        if fault is not None and fault.wrong_encoding:
            data = _latin(data)
        if fault is not None and fault.garbage:
            data = data[: len(data) // 2] + b"\x00{]"
        if fault is None or (fault.drop is None and fault.after is None):
            return self._send(200, data, {"content-type": "application/json"})
        half = 0 if fault.drop == "after_headers" else len(data) // 2
        headers = {"content-type": "application/json", "content-length": str(len(data))}
        self.connection.sendall(_head(200, headers) + data[:half])
        if fault.stall is not None:
            self._stall(fault.stall)
        if fault.drop is not None:
            return self._cut("reset" if fault.how == "reset" else "close")
        self.connection.sendall(data[half:])
        return None

    def _stream(self, turn: Turn, reply: Reply, dialect: Dialect) -> None:
        fault = turn.fault
        frames = [frame.data for frame in reply.frames]
        place = _place(fault, reply.frames) if fault is not None else len(frames)
        if fault is not None and fault.wrong_encoding:
            frames = [_latin(frame) for frame in frames]
        head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        self.connection.sendall(_head(200, {**head, "transfer-encoding": "chunked"}))
        self._send_frames(frames[:place], turn.delay)
        if fault is not None:
            if fault.stall is not None and fault.after is not None:
                self._stall(fault.stall)
            if fault.drip is not None:
                self._drip(fault.drip)
            if fault.drop is not None:
                return self._cut(fault.how)
            if fault.garbage:
                self._send_frames([_garbage(fault.garbage)], turn.delay)
            if fault.event_error is not None:
                self._send_frames([_event_error(fault, dialect)], turn.delay)
                frames = frames[:place]
        self._send_frames(frames[place:], turn.delay)
        self.connection.sendall(b"0\r\n\r\n")
        return None

    def _send_frames(self, frames: list[bytes], delay: float) -> None:
        chunks = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames]
        if not delay:
            self.connection.sendall(b"".join(chunks))
            return
        for chunk in chunks:
            self.connection.sendall(chunk)
            self._stall(delay)

    def _stall(self, seconds: float | str) -> None:
        """Send nothing for so long. Raises `ClientGone` when the client leaves or the server closes."""
        timeout = None if isinstance(seconds, str) else float(seconds)
        ready, _, _ = select.select([self.connection], [], [], timeout)
        if ready and not self.connection.recv(1, socket.MSG_PEEK):
            raise ClientGone
        if ready:
            self._model_server.closing.wait(timeout)

    def _drip(self, seconds: float) -> None:
        """Send comments, which say nothing, until the client leaves. Raises `ClientGone` then."""
        while True:
            self._send_frames([b": still here\n\n"], seconds)

    def _cut(self, how: str) -> None:
        """End the connection: `reset` with a TCP reset, `close` in the middle of the HTTP message, `eof`
        with a complete HTTP message that lacks the rest of the stream."""
        if how == "eof":
            self.connection.sendall(b"0\r\n\r\n")
            return
        self.close_connection = True
        if how == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _too_long(size: int, window: int, dialect: Dialect) -> str:
    if dialect == "anthropic":
        return f"prompt is too long: {size} tokens > {window} maximum"
    if dialect == "openai-responses":
        return "Your input exceeds the context window of this model. Please adjust your input and try again."
    return f"This model's maximum context length is {window} tokens. Your messages resulted in {size} tokens."


def _header(value: str | Mapping[str, float]) -> str:
    """A header's text; `{"date_in": S}` is the HTTP date in S seconds."""
    return value if isinstance(value, str) else formatdate(time.time() + value["date_in"], usegmt=True)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Overloaded')}"]
    lines += [f"{key}: {value}" for key, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _place(fault: Fault, frames: list[Frame]) -> int:
    """How many frames are sent before the fault."""
    if fault.after is not None:
        return min(fault.after, len(frames))
    if fault.drop == "after_headers":
        return 0
    kind = {"in_tool": "tool", "in_thinking": "thinking"}.get(fault.drop or "")
    deltas = [
        place for place, frame in enumerate(frames) if (frame.kind == kind if kind else frame.kind != "other")
    ]
    if kind and not deltas:
        raise ValueError(f"the turn has nothing for {fault.drop}")
    return deltas[0 if kind else (len(deltas) - 1) // 2] + 1 if deltas else 1


def _garbage(given: str | bool) -> bytes:
    text = "data: {this is no JSON" if given is True else str(given)
    return f"{text}\n\n".encode()


def _event_error(fault: Fault, dialect: Dialect) -> bytes:
    kind = fault.event_error or "api_error"
    message = fault.message or kind.removesuffix("_error").capitalize()
    match dialect:
        case "anthropic":
            return anthropic_wire.event_error(kind, message)
        case "openai-responses":
            return responses_wire.event_error(kind, message, fault.form)
        case _:
            return chat_wire.event_error(kind, message)


def _latin(data: bytes) -> bytes:
    return data.decode().encode("latin-1", "replace")


def _words(body: dict[str, Any]) -> tuple[str, str, str]:
    """Text of the last user or tool message, text of the whole request, model."""
    given = body.get("messages") if "messages" in body else body.get("input")
    messages = [given] if isinstance(given, str) else list(given or [])
    last = ""
    for message in reversed(messages):
        role = message.get("role", message.get("type")) if isinstance(message, dict) else "user"
        if role in ("user", "tool", "function_call_output"):
            last = texts(message)
            break
    whole = "\n".join([texts(body.get("system")), texts(body.get("instructions")), texts(messages)])
    return last, whole, str(body.get("model", ""))
