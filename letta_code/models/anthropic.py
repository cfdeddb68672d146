"""Anthropic's Messages API.

Thinking blocks are sent back byte for byte. Newer models bind a block to everything before it and refuse
a request in which that changed (a recompiled prompt, a compaction), so each block is kept together with
a hash of what preceded it, and left out once that no longer matches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from letta_code.core.messages import (
    Block,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from letta_code.core.text import well_formed
from letta_code.models.arguments import CallIds, encode, plain_id, plain_name, tool_call
from letta_code.models.base import (
    Completed,
    ModelInfo,
    ModelPart,
    ModelRequest,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from letta_code.models.history import well_formed_history
from letta_code.models.wire import Reply, WireModel, number

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "context_full",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "pause_turn": "end_turn",
}
_MARK = {"type": "ephemeral"}
_MARKED_MESSAGES = 2


class AnthropicModel(WireModel):
    """A model behind the Messages API."""

    _client: AsyncAnthropic

    def _connect(self, http: httpx2.AsyncClient) -> type[Exception]:
        from anthropic import AnthropicError, AsyncAnthropic

        endpoint = self._endpoint
        bearer = endpoint.key_source == "ANTHROPIC_AUTH_TOKEN"
        key = endpoint.api_key or "none"  # the SDK wants one; a local server does not look at it
        self._client = AsyncAnthropic(
            api_key=None if bearer else key,
            auth_token=key if bearer else None,
            base_url=endpoint.base_url,
            max_retries=0,
            http_client=http,
            open_telemetry={"propagation": False, "traces": {"enabled": False}},
        )
        return AnthropicError

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return build(self._info, request)

    def _open(self, body: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
        return self._client.messages.with_streaming_response.create(**body)

    def _reply(self, request: ModelRequest) -> Reply:
        return _Reply(self._info, request)


def build(info: ModelInfo, request: ModelRequest) -> dict[str, Any]:
    """The request's parameters, cache marks included; the same request always gives the same."""
    body = _frame(info, request)
    body["messages"], _ = _messages(info, request)
    _mark(body)
    return body


def _frame(info: ModelInfo, request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"model": info.name, "max_tokens": info.max_output, "stream": True}
    if info.thinking:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.schema) or {"type": "object"},
            }
            for tool in request.tools
        ]
    system = [{"type": "text", "text": well_formed(part)} for part in request.system if part.strip()]
    if system:
        body["system"] = system
    return body


def _messages(info: ModelInfo, request: ModelRequest) -> tuple[list[dict[str, Any]], str]:
    """The messages, and the hash of everything a reply to them is bound to."""
    digest = hashlib.sha256(_bytes([_frame(info, request).get(key) for key in ("tools", "system")]))
    wire: list[dict[str, Any]] = []
    hashed = 0
    for message in _placed(well_formed_history(request.messages, info), info):
        role, content = message.role, []
        if role == "assistant":
            for sent in wire[hashed:]:
                digest.update(_bytes(sent))
            hashed = len(wire)
        for block in message.blocks:
            if isinstance(block, Thinking):
                content += _thinking(block, digest.hexdigest())
            else:
                content.append(_block(block))
        role = "user" if role == "tool" else role
        if not content:
            continue
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += content
        else:
            wire.append({"role": role, "content": content})
    for sent in wire[hashed:]:
        digest.update(_bytes(sent))
    return wire, digest.hexdigest()


def _placed(turns: list[Message], info: ModelInfo) -> Iterator[Message]:
    """System messages may stand only right after a user turn and before the assistant's or the end, and
    never two in a row; elsewhere, and for models that know none, they are words of the user."""
    for position, message in enumerate(turns):
        if message.role != "system":
            yield message
            continue
        before = turns[position - 1].role if position else "assistant"
        after = turns[position + 1].role if position + 1 < len(turns) else "assistant"
        allowed = info.system_messages and before in ("user", "tool") and after == "assistant"
        yield message if allowed else Message("user", message.blocks, "harness")


def _thinking(block: Thinking, preceding: str) -> list[dict[str, Any]]:
    opaque = block.opaque or {}
    return [dict(opaque["block"])] if opaque.get("after") in (None, preceding) and "block" in opaque else []


def _block(block: Block) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Image):
        source = {"type": "base64", "media_type": block.media_type, "data": block.data}
        return {"type": "image", "source": source}
    if isinstance(block, ToolCall):
        return {
            "type": "tool_use",
            "id": plain_id(block.id),
            "name": plain_name(block.name),
            "input": dict(encode(block)),
        }
    assert isinstance(block, ToolResult)
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": plain_id(block.call_id)}
    result["content"] = [_block(item) for item in block.content]
    if block.is_error:
        result["is_error"] = True
    return result


def _mark(body: dict[str, Any]) -> None:
    if "system" in body:
        body["system"][-1]["cache_control"] = _MARK
    elif "tools" in body:
        body["tools"][-1]["cache_control"] = _MARK
    users = [message for message in body["messages"] if message["role"] == "user"]
    for message in users[-_MARKED_MESSAGES:]:
        message["content"][-1]["cache_control"] = _MARK


def _bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class _Reply(Reply):
    def __init__(self, info: ModelInfo, request: ModelRequest) -> None:
        self._info = info
        self._after = _messages(info, request)[1]
        self._ids = CallIds(request.messages)
        self._blocks: list[dict[str, Any]] = []
        self._open: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelPart]:
        kind = event.get("type")
        if kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "content_block_start":
            return self._begin(event["index"], event["content_block"])
        elif kind == "content_block_delta":
            return self._grow(self._open[event["index"]], event["delta"])
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.finished = True
        return ()

    def whole(self, answer: Mapping[str, Any]) -> Iterable[ModelPart]:
        parts: list[ModelPart] = []
        for index, block in enumerate(answer["content"]):
            parts += self._begin(index, block)
        self._stop = answer.get("stop_reason")
        self._count(answer.get("usage"))
        self.finished = True
        return parts

    def _count(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self._usage.update({key: value for key, value in usage.items() if value is not None})

    def _begin(self, index: int, block: Mapping[str, Any]) -> list[ModelPart]:
        kept = dict(block)
        self._blocks.append(kept)
        self._open[index] = kept
        if kept["type"] == "tool_use":
            kept["id"] = self._ids.take(str(kept.get("id") or ""))
            kept["json"] = ""
            return [ToolCallPart(kept["id"], well_formed(str(kept.get("name") or "")))]
        if kept["type"] == "text" and kept.get("text"):
            return [TextPart(well_formed(kept["text"]))]
        if kept["type"] == "thinking" and kept.get("thinking"):
            return [ThinkingPart(well_formed(kept["thinking"]))]
        return []

    def _grow(self, block: dict[str, Any], delta: Mapping[str, Any]) -> list[ModelPart]:
        kind = delta["type"]
        if kind == "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
            return [TextPart(well_formed(delta["text"]))]
        if kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
            return [ThinkingPart(well_formed(delta["thinking"]))]
        if kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "input_json_delta":
            block["json"] += delta["partial_json"]
        return []

    def completed(self) -> Completed:
        blocks = tuple(kept for block in self._blocks if (kept := self._kept(block)) is not None)
        usage = Usage(
            number(self._usage, "input_tokens"),
            number(self._usage, "output_tokens"),
            number(self._usage, "cache_read_input_tokens"),
            number(self._usage, "cache_creation_input_tokens"),
        )
        stop = _STOPS.get(self._stop or "", "end_turn")
        return Completed(Message("assistant", blocks, "agent"), usage, stop)

    def _kept(self, block: dict[str, Any]) -> Block | None:
        if block["type"] == "text":
            return Text(well_formed(block["text"])) if block.get("text") else None
        if block["type"] == "tool_use":
            written = block["json"] or (json.dumps(block["input"]) if block.get("input") else "")
            return tool_call(block["id"], str(block.get("name") or ""), written)
        if block["type"] in ("thinking", "redacted_thinking"):
            signed = block.get("signature") or block.get("data")
            return Thinking(
                well_formed(block.get("thinking") or ""),
                "anthropic",
                self._info.handle,
                {"block": block, "after": self._after} if signed else None,
            )
        return None
