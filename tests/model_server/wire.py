"""What the three dialects share: the parts of a reply, signatures, token counts.

A dialect turns a `Turn` into a `Reply`: the JSON body for a request without streaming, and the list of
SSE frames for one with it. The server sends frames and breaks them where a fault says so; it does not
know what is in them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import secrets
from dataclasses import dataclass
from typing import Any, Literal

from tests.model_server.script import Call, Turn

Kind = Literal["other", "text", "thinking", "tool"]
Dialect = Literal["anthropic", "openai-responses", "openai-chat"]

_KEY = b"signs what the scripted model thought"


@dataclass(frozen=True, slots=True)
class Frame:
    """One SSE event as bytes; `kind` is other than "other" for a delta of that kind."""

    data: bytes
    kind: Kind = "other"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer, in both forms."""

    body: Any
    frames: list[Frame]


class Issuer:
    """Ids that no other server of the test run gives out."""

    def __init__(self) -> None:
        self._mine = secrets.token_hex(5)
        self._count = itertools.count(1)

    def new(self) -> str:
        """Hexadecimal digits, unique."""
        return f"{self._mine}{next(self._count):05x}"

    def call_ids(self, turn: Turn, prefix: str) -> list[str]:
        """The ids of the turn's tool calls, with the turn's fault applied."""
        ids = [item.id if item.id is not None else f"{prefix}_{self.new()}" for item in turn.calls]
        wrong = turn.fault.call_ids if turn.fault else None
        if wrong == "duplicate":
            return ids[:1] * len(ids)
        return [""] * len(ids) if wrong == "missing" else ids


def sign(model: str, text: str) -> str:
    """The signature for `text` thought by `model`: the same in every server, as with a real provider,
    so that a conversation can go on with another server."""
    mac = hmac.new(_KEY, f"{model}\0{text}".encode(), hashlib.sha256).digest()
    return "Eq" + base64.b64encode(mac * 3).decode()


def sse(data: Any, event: str | None = None) -> bytes:
    """An SSE event; the JSON is UTF-8, not escaped."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def pieces(text: str, turn: Turn, kind: Kind) -> list[str]:
    """`text` in deltas of the turn's size; in two at least where a fault cuts inside this kind."""
    size = max(1, turn.chunk)
    if turn.fault and turn.fault.drop == f"in_{kind}":
        size = max(1, min(size, len(text) // 2))
    return [text[start : start + size] for start in range(0, len(text), size)]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts of a turn; `input` is what no cache held."""

    input: int
    output: int
    cache_read: int
    cache_write: int

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.input + self.cache_read + self.cache_write


def tokens(turn: Turn, raw: bytes, override: int | None) -> Tokens:
    """The turn's own numbers, else about a token for four bytes; `override` is the whole prompt."""
    if override is not None:
        return Tokens(override, _output(turn), 0, 0)
    given = turn.usage or {}
    return Tokens(
        given.get("input", max(1, len(raw) // 4)),
        given.get("output", _output(turn)),
        given.get("cache_read", 0),
        given.get("cache_write", 0),
    )


def _output(turn: Turn) -> int:
    size = len(turn.text) + len(turn.thinking) + sum(len(item.name + item.raw) for item in turn.calls)
    return max(1, size // 4)


def decoded(item: Call) -> Any:
    """The arguments as a JSON value, or the raw text where that is no JSON."""
    try:
        return json.loads(item.raw)
    except ValueError:
        return item.raw


def texts(content: Any) -> str:
    """All words in a message's content (a string, or blocks of any dialect)."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(texts(item) for item in content)
    if isinstance(content, dict):
        found = [content[key] for key in ("text", "content", "output") if content.get(key)]
        return "\n".join(texts(item) for item in found)
    return ""
