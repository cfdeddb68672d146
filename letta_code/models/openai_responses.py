"""OpenAI's Responses API, stateless: nothing is stored there, reasoning comes back encrypted and is sent
again with the message it belongs to."""

from __future__ import annotations

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
from letta_code.models.failures import from_event
from letta_code.models.history import well_formed_history
from letta_code.models.openai_common import connect, data_url
from letta_code.models.wire import Reply, WireModel, openai_usage

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

    from letta_code.models.endpoint import Endpoint


class OpenAIResponsesModel(WireModel):
    """A model behind the Responses API."""

    _client: AsyncOpenAI

    def _connect(self, http: httpx2.AsyncClient) -> type[Exception]:
        self._client, error = connect(self._endpoint, http)
        return error

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return build(self._info, request)

    def _open(self, body: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
        return self._client.responses.with_streaming_response.create(**body)

    def _reply(self, request: ModelRequest) -> Reply:
        return _Reply(self._info, request, self._endpoint)


def build(info: ModelInfo, request: ModelRequest) -> dict[str, Any]:
    """The request's parameters; the same request always gives the same."""
    body: dict[str, Any] = {"model": info.name, "stream": True, "store": False}
    body["prompt_cache_key"] = request.conversation_id
    if info.known:
        body["max_output_tokens"] = info.max_output
    if info.thinking:
        body["include"] = ["reasoning.encrypted_content"]
        body["reasoning"] = {"summary": "auto"}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.schema) or {"type": "object", "properties": {}},
                "strict": False,
            }
            for tool in request.tools
        ]
    system = [well_formed(part) for part in request.system if part.strip()]
    if system:
        body["instructions"] = "\n\n".join(system)
    body["input"] = list(_items(well_formed_history(request.messages, info), info))
    return body


def _items(turns: list[Message], info: ModelInfo) -> Iterator[dict[str, Any]]:
    for message in turns:
        if message.role in ("user", "system"):
            role = "developer" if message.role == "system" and info.system_messages else "user"
            yield {"type": "message", "role": role, "content": [_content(block) for block in message.blocks]}
            continue
        for block in message.blocks:
            yield from _item(block)


def _item(block: Block) -> Iterator[dict[str, Any]]:
    if isinstance(block, Thinking):
        yield dict((block.opaque or {})["item"])
    elif isinstance(block, Text):
        yield {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": block.text}],
        }
    elif isinstance(block, ToolCall):
        yield {
            "type": "function_call",
            "call_id": plain_id(block.id),
            "name": plain_name(block.name),
            "arguments": encode_text(block),
        }
    elif isinstance(block, ToolResult):
        pictures = any(isinstance(item, Image) for item in block.content)
        yield {
            "type": "function_call_output",
            "call_id": plain_id(block.call_id),
            "output": [_content(item) for item in block.content] if pictures else block.text,
        }


def _content(block: Block) -> dict[str, Any]:
    if isinstance(block, Image):
        return {"type": "input_image", "image_url": data_url(block), "detail": "auto"}
    assert isinstance(block, Text)
    return {"type": "input_text", "text": block.text}


class _Reply(Reply):
    def __init__(self, info: ModelInfo, request: ModelRequest, endpoint: Endpoint) -> None:
        self._info = info
        self._endpoint = endpoint
        self._ids = CallIds(request.messages)
        self._items: dict[int, dict[str, Any]] = {}
        self._given: dict[int, str] = {}
        self._text: list[str] = []
        self._stop: StopReason = "end_turn"
        self._usage = Usage()

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelPart]:
        kind = event.get("type")
        if kind == "response.output_item.added" and event["item"]["type"] == "function_call":
            return [self._call(event["output_index"], event["item"])]
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._text.append(well_formed(event["delta"]))
            return [TextPart(self._text[-1])]
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            return [ThinkingPart(well_formed(event["delta"]))]
        if kind == "response.output_item.done":
            self._items[event["output_index"]] = event["item"]
        elif kind in ("response.completed", "response.incomplete"):
            self._end(event["response"])
        elif kind == "response.failed":
            raise from_event(event["response"].get("error") or {}, self._endpoint)
        return ()

    def whole(self, answer: Mapping[str, Any]) -> Iterable[ModelPart]:
        parts: list[ModelPart] = []
        for index, item in enumerate(answer["output"]):
            self._items[index] = item
            if item["type"] == "function_call":
                parts.append(self._call(index, item))
            elif item["type"] == "message":
                parts += [TextPart(text) for text in _texts(item)]
        if answer.get("status") == "failed":
            raise from_event(answer.get("error") or {}, self._endpoint)
        self._end(answer)
        return parts

    def _call(self, index: int, item: Mapping[str, Any]) -> ToolCallPart:
        self._given[index] = self._ids.take(str(item.get("call_id") or ""))
        return ToolCallPart(self._given[index], well_formed(str(item.get("name") or "")))

    def _end(self, response: Mapping[str, Any]) -> None:
        output = response.get("output") or ()
        if len(output) > len(self._items):  # some server gives every item the index 0
            self._items = dict(enumerate(output))
        reason = (response.get("incomplete_details") or {}).get("reason")
        if reason:
            self._stop = "refusal" if reason == "content_filter" else "max_tokens"
        elif response.get("status") not in (None, "completed"):
            raise ModelError(
                f"{self._endpoint.provider}: the answer is {response['status']}", "broken_stream"
            )
        self._usage = openai_usage(response.get("usage"), "input", "output")
        self.finished = True

    def completed(self) -> Completed:
        blocks: list[Block] = []
        for index, item in sorted(self._items.items()):
            if item["type"] == "message":
                blocks += [Text(text) for text in _texts(item)]
                if any(part.get("type") == "refusal" for part in item.get("content") or ()):
                    self._stop = "refusal"
            elif item["type"] == "function_call":
                call_id = self._given.get(index) or self._ids.take(str(item.get("call_id") or ""))
                written = item.get("arguments") or ""
                written = json.dumps(written) if isinstance(written, dict) else written
                blocks.append(tool_call(call_id, str(item.get("name") or ""), written))
            elif item["type"] == "reasoning":
                blocks.append(self._reasoning(item))
        if not blocks and self._text:  # a server that gives words, and no item that holds them
            blocks.append(Text("".join(self._text)))
        if self._stop == "end_turn" and any(isinstance(block, ToolCall) for block in blocks):
            self._stop = "tool_use"
        return Completed(Message("assistant", tuple(blocks), "agent"), self._usage, self._stop)

    def _reasoning(self, item: Mapping[str, Any]) -> Thinking:
        parts = item.get("summary") or item.get("content") or ()
        text = "\n\n".join(well_formed(part.get("text") or "") for part in parts)
        kept = {key: value for key, value in item.items() if key != "status" and value is not None}
        # Without the encrypted content the server would look for an item that it never stored.
        opaque = {"item": kept} if item.get("encrypted_content") else None
        return Thinking(text, "openai-responses", self._info.handle, opaque)


def _texts(item: Mapping[str, Any]) -> list[str]:
    texts = [part.get("text") or part.get("refusal") or "" for part in item.get("content") or ()]
    return [well_formed(text) for text in texts if text]
