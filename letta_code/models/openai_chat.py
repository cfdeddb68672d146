"""Chat Completions, for every server that is compatible with it."""

from __future__ import annotations

import asyncio
import dataclasses
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
from letta_code.errors import ModelError
from letta_code.models.arguments import CallIds, encode_text, plain_id, plain_name, tool_call
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
from letta_code.models.local import served_window, window_cure
from letta_code.models.openai_common import connect, data_url
from letta_code.models.wire import Reply, WireModel, openai_usage, with_window

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_BROKEN = ("error", "abort", "aborted", "cancelled")
"""Finish reasons with which servers own up to an answer that they did not finish."""
_REASONING_FIELDS = ("reasoning_content", "reasoning")


class OpenAIChatModel(WireModel):
    """A model behind Chat Completions."""

    _client: AsyncOpenAI
    _warned = False

    def _connect(self, http: httpx2.AsyncClient) -> type[Exception]:
        self._client, error = connect(self._endpoint, http)
        return error

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return build(self._info, request)

    def _open(self, body: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
        return self._client.chat.completions.with_streaming_response.create(**body)

    def _reply(self, request: ModelRequest) -> Reply:
        return _Reply(self._info, request)

    async def _settled(self, completed: Completed, body: Mapping[str, Any]) -> Completed:
        if self._warned or not self._endpoint.loopback:
            return completed
        counted = completed.usage.context - completed.usage.output
        least = least_tokens(body["messages"])
        if not 0 < counted < least:
            return completed
        self._warned = True
        window = await asyncio.to_thread(served_window, self._endpoint, self._info.name)
        if window:
            self._info = with_window(self._info, window)
        note = (
            f"{self._endpoint.provider} read {counted:,} prompt tokens of at least {least:,} sent: it serves "
            f"a smaller window{f' ({window:,} tokens)' if window else ''} and dropped the rest, the system "
            f"prompt first. Cure: {window_cure(self._endpoint.provider)}"
        )
        return dataclasses.replace(completed, notes=(*completed.notes, note))


def build(info: ModelInfo, request: ModelRequest) -> dict[str, Any]:
    """The request's parameters; the same request always gives the same."""
    body: dict[str, Any] = {"model": info.name, "stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.schema) or {"type": "object", "properties": {}},
                },
            }
            for tool in request.tools
        ]
    messages = []
    system = [well_formed(part) for part in request.system if part.strip()]
    if system:
        messages.append({"role": "system", "content": "\n\n".join(system)})
    messages += _messages(well_formed_history(request.messages, info))
    body["messages"] = messages
    return body


def least_tokens(messages: list[dict[str, Any]]) -> int:
    """A count of tokens that no tokenizer stays below on real text: for the question whether a server
    read everything. 0 for texts too short to tell."""
    text = "".join(message["content"] for message in messages if isinstance(message.get("content"), str))
    ascii_only = sum(char.isascii() for char in text)
    least = ascii_only // 10 + (len(text) - ascii_only) // 4
    return least if least >= 500 else 0


def _messages(turns: list[Message]) -> Iterator[dict[str, Any]]:
    """Strict chat templates refuse two user messages in a row, so neighbours become one."""
    waiting: list[Block] = []
    for message in turns:
        if message.role in ("user", "system"):
            waiting += message.blocks
            continue
        if waiting:
            yield {"role": "user", "content": _content(waiting)}
            waiting = []
        if message.role == "assistant":
            yield _assistant(message)
        else:
            # Few servers take pictures in a tool message; they follow as the user's.
            for block in message.blocks:
                assert isinstance(block, ToolResult)
                text = block.text or "(a picture, shown below)"
                yield {"role": "tool", "tool_call_id": plain_id(block.call_id), "content": text}
                waiting += [item for item in block.content if isinstance(item, Image)]
    if waiting:
        yield {"role": "user", "content": _content(waiting)}


def _assistant(message: Message) -> dict[str, Any]:
    text = "\n\n".join(block.text for block in message.blocks if isinstance(block, Text))
    sent: dict[str, Any] = {"role": "assistant", "content": text or None}
    for block in message.blocks:
        if isinstance(block, Thinking) and block.opaque and message.tool_calls:
            field = str(block.opaque["field"])
            sent[field] = sent.get(field, "") + block.text
    if message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": plain_id(call.id),
                "type": "function",
                "function": {"name": plain_name(call.name), "arguments": encode_text(call)},
            }
            for call in message.tool_calls
        ]
    elif not text:
        sent["content"] = "(no answer)"
    return sent


def _content(blocks: list[Block]) -> str | list[dict[str, Any]]:
    if not any(isinstance(block, Image) for block in blocks):
        return "\n\n".join(block.text for block in blocks if isinstance(block, Text))
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, Image):
            parts.append({"type": "image_url", "image_url": {"url": data_url(block)}})
        elif isinstance(block, Text):
            parts.append({"type": "text", "text": block.text})
    return parts


class _Reply(Reply):
    def __init__(self, info: ModelInfo, request: ModelRequest) -> None:
        self._info = info
        self._ids = CallIds(request.messages)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._field = ""
        self._calls: dict[Any, dict[str, Any]] = {}
        self._stop: str | None = None
        self._refused = False
        self._usage = Usage()

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelPart]:
        if event.get("type") == "[DONE]":
            self.finished = True
            return ()
        if event.get("usage"):
            self._usage = openai_usage(event["usage"], "prompt", "completion")
            # The usage comes last; a server that then neither closes nor says [DONE] has still finished.
            self.finished = self.finished or self._stop is not None
        parts: list[ModelPart] = []
        for choice in event.get("choices") or ():
            parts += self._take(choice.get("delta") or choice.get("message") or {})
            self._stop = choice.get("finish_reason") or self._stop
            if self._stop in _BROKEN:
                raise ModelError(f"{self._info.provider}: the server broke the answer off", "broken_stream")
        return parts

    def whole(self, answer: Mapping[str, Any]) -> Iterable[ModelPart]:
        parts = list(self.feed(answer))
        self.finished = bool(answer["choices"])
        return parts

    def ended(self) -> None:
        """The stream closed: that ends a message whose finish reason came."""
        self.finished = self.finished or self._stop is not None

    def _take(self, delta: Mapping[str, Any]) -> Iterator[ModelPart]:
        for field in _REASONING_FIELDS:
            if isinstance(delta.get(field), str) and delta[field]:
                self._field = self._field or field
                if field == self._field:
                    self._reasoning.append(delta[field])
                    yield ThinkingPart(well_formed(delta[field]))
        for text in (delta.get("content"), delta.get("refusal")):
            for piece in _pieces(text):
                self._text.append(piece)
                yield TextPart(well_formed(piece))
        self._refused = self._refused or bool(delta.get("refusal"))
        for position, call in enumerate(delta.get("tool_calls") or ()):
            yield from self._call(position, call)

    def _call(self, position: int, call: Mapping[str, Any]) -> Iterator[ModelPart]:
        function = call.get("function") or {}
        key = call.get("index")
        if key is None:  # servers that send whole calls give no index
            key = call.get("id") or f"call {len(self._calls)} {position}"
        known = self._calls.get(key)
        # Some servers give every parallel call the index 0; a new id with a name is a new call.
        if known and call.get("id") and function.get("name") and call["id"] != known["server_id"]:
            key = (key, call["id"])
            known = self._calls.get(key)
        if known is None:
            call_id = self._ids.take(str(call.get("id") or ""))
            known = {
                "id": call_id,
                "server_id": call.get("id"),
                "name": function.get("name") or "",
                "json": [],
            }
            self._calls[key] = known
            yield ToolCallPart(call_id, well_formed(known["name"]))
        elif function.get("name") and not known["name"]:
            known["name"] = function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            known["json"].append(arguments)
        elif isinstance(arguments, dict):
            known["json"].append(encode_text(ToolCall("", "", arguments)))

    def completed(self) -> Completed:
        blocks: list[Block] = []
        if self._reasoning:
            text = well_formed("".join(self._reasoning))
            blocks.append(Thinking(text, "openai-chat", self._info.handle, {"field": self._field}))
        if text := well_formed("".join(self._text)):
            blocks.append(Text(text))
        blocks += [
            tool_call(call["id"], call["name"], "".join(call["json"])) for call in self._calls.values()
        ]
        stop = _STOPS.get(self._stop or "", "end_turn")
        if self._refused:
            stop = "refusal"
        elif stop in ("end_turn", "tool_use"):
            stop = "tool_use" if self._calls else "end_turn"
        return Completed(Message("assistant", tuple(blocks), "agent"), self._usage, stop)


def _pieces(content: object) -> Iterator[str]:
    if isinstance(content, str):
        if content:
            yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield part["text"]
