"""The real SDKs behind one small door, for the tests of this server: ask, and see what arrived."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anthropic
import httpx2
import openai
from openai.types.responses import Response

from tests.model_server.server import ModelServer
from tests.model_server.wire import Dialect

DIALECTS: tuple[Dialect, ...] = ("anthropic", "openai-responses", "openai-chat")
MODEL = "claude-sonnet-5-5"
USER = ({"role": "user", "content": "hello"},)


@dataclass(slots=True)
class Answer:
    """What an SDK made of a reply. `stop` is the provider's word, "" when the stream ended without one."""

    text: str = ""
    thinking: str = ""
    signature: str | None = None
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    stop: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    deltas: int = 0
    raw: Any = None


class Ask(Protocol):
    """`messages` are in the dialect's own shape; `more` are further parameters of the request."""

    def __call__(self, messages: Sequence[Any] = USER, stream: bool = True, **more: Any) -> Answer: ...


@contextmanager
def client(server: ModelServer, dialect: Dialect, timeout: float = 20.0) -> Iterator[Ask]:
    """A function that asks through the SDK of `dialect`, which never retries by itself."""
    common: dict[str, Any] = {"api_key": "x", "max_retries": 0, "timeout": timeout}
    with httpx2.Client(verify=False) as http:  # nothing here is TLS, and loading certificates is slow
        if dialect == "anthropic":
            with anthropic.Anthropic(base_url=server.url, http_client=http, **common) as sdk:
                yield lambda messages=USER, stream=True, **more: _anthropic(sdk, messages, stream, more)
            return
        asked = _responses if dialect == "openai-responses" else _chat
        with openai.OpenAI(base_url=f"{server.url}/v1", http_client=http, **common) as other:
            yield lambda messages=USER, stream=True, **more: asked(other, messages, stream, more)


def _anthropic(
    sdk: anthropic.Anthropic, messages: Sequence[Any], stream: bool, more: dict[str, Any]
) -> Answer:
    parameters: dict[str, Any] = {"model": MODEL, "max_tokens": 1000, "messages": list(messages), **more}
    answer = Answer()
    if stream:
        with sdk.messages.create(stream=True, **parameters) as events:
            message: dict[str, Any] = {"content": [], "usage": {}, "stop_reason": None}
            for event in events:
                _collect(message, event, answer)
    else:
        message = sdk.messages.create(**parameters).to_dict(warnings=False)
    for block in message["content"]:
        match block["type"]:
            case "text":
                answer.text += block["text"]
            case "thinking":
                answer.thinking, answer.signature = block["thinking"], block["signature"]
            case _:
                answer.calls.append((block["id"], block["name"], block["input"]))
    usage = message["usage"]
    answer.stop = message["stop_reason"] or ""
    answer.cached_tokens = usage.get("cache_read_input_tokens", 0)
    written = usage.get("cache_creation_input_tokens", 0)
    answer.prompt_tokens = usage.get("input_tokens", 0) + answer.cached_tokens + written
    answer.output_tokens = usage.get("output_tokens", 0)
    answer.raw = message
    return answer


def _collect(message: dict[str, Any], event: anthropic.types.RawMessageStreamEvent, answer: Answer) -> None:
    match event.type:
        case "message_start":
            message["usage"] |= event.message.usage.to_dict()
        case "content_block_start":
            message["content"].append(event.content_block.to_dict() | {"raw": ""})
        case "content_block_delta":
            answer.deltas += 1
            delta, block = event.delta.to_dict(), message["content"][event.index]
            for key in ("text", "thinking", "signature"):
                block[key] = str(block.get(key, "")) + str(delta.get(key, ""))
            block["raw"] += str(delta.get("partial_json", ""))
        case "content_block_stop":
            block = message["content"][event.index]
            if block["type"] == "tool_use":
                block["input"] = _decoded(block["raw"])
        case "message_delta":
            message["usage"] |= event.usage.to_dict()
            message["stop_reason"] = event.delta.stop_reason
        case _:
            pass


def _chat(sdk: openai.OpenAI, messages: Sequence[Any], stream: bool, more: dict[str, Any]) -> Answer:
    parameters: dict[str, Any] = {"model": MODEL, "messages": list(messages), **more}
    answer = Answer()
    if not stream:
        whole: Any = sdk.chat.completions.create(**parameters).to_dict()
        message = whole["choices"][0]["message"]
        answer.text, answer.thinking = message["content"] or "", message.get("reasoning_content", "")
        made = message.get("tool_calls", [])
        answer.stop = whole["choices"][0]["finish_reason"]
        usage: Any = whole["usage"]
        answer.raw = message
    else:
        made, usage = [], None
        with sdk.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **parameters
        ) as chunks:
            for chunk in chunks:
                usage = chunk.to_dict().get("usage") or usage
                for choice in chunk.choices:
                    delta: Any = choice.delta.to_dict()
                    answer.deltas += 1
                    answer.text += delta.get("content") or ""
                    answer.thinking += delta.get("reasoning_content") or ""
                    answer.stop = choice.finish_reason or answer.stop
                    _collect_calls(made, delta.get("tool_calls") or [])
    for item in made:
        function = item["function"]
        answer.calls.append((item.get("id", ""), function["name"], _decoded(function["arguments"])))
    if usage:
        answer.prompt_tokens, answer.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        answer.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
    return answer


def _collect_calls(made: list[Any], deltas: list[Any]) -> None:
    for delta in deltas:
        if delta["index"] == len(made):
            made.append(delta)
        else:
            made[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]


def _responses(sdk: openai.OpenAI, messages: Sequence[Any], stream: bool, more: dict[str, Any]) -> Answer:
    parameters: dict[str, Any] = {"model": MODEL, "input": list(messages), "store": False, **more}
    answer = Answer()
    response: Response | None = None
    if stream:
        with sdk.responses.create(stream=True, **parameters) as events:
            for event in events:
                answer.deltas += "delta" in event.type
                match event.type:
                    case "response.output_text.delta" | "response.refusal.delta":
                        answer.text += event.delta
                    case "response.completed" | "response.incomplete" | "response.failed":
                        response = event.response
                    case "error":
                        raise openai.APIError(event.message, _NO_REQUEST, body={"code": event.code})
                    case _:
                        pass
    else:
        response = sdk.responses.create(**parameters)
    if response is None:
        return answer
    if response.error is not None:
        raise openai.APIError(response.error.message, _NO_REQUEST, body={"code": response.error.code})
    _read_response(response, answer)
    return answer


def _read_response(response: Response, answer: Answer) -> None:
    answer.raw = [item.to_dict() for item in response.output]
    answer.text = ""
    for item in response.output:
        match item.type:
            case "message":
                answer.text += "".join(
                    part.text if part.type == "output_text" else part.refusal for part in item.content
                )
            case "reasoning":
                answer.thinking = "".join(part.text for part in item.summary)
                answer.signature = item.encrypted_content or ""
            case "function_call":
                answer.calls.append((item.call_id, item.name, _decoded(item.arguments)))
            case _:
                raise AssertionError(item.type)
    details = response.incomplete_details
    answer.stop = (details.reason if details else response.status) or ""
    assert response.usage is not None
    answer.prompt_tokens, answer.output_tokens = response.usage.input_tokens, response.usage.output_tokens
    answer.cached_tokens = response.usage.input_tokens_details.cached_tokens


_NO_REQUEST: Any = None


def _decoded(raw: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw
