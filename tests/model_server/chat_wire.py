"""OpenAI Chat Completions: a turn as a completion, its chunks, and OpenAI's errors."""

from __future__ import annotations

from typing import Any

from tests.model_server.script import Turn
from tests.model_server.wire import Frame, Issuer, Reply, Tokens, pieces, sse

ERROR_CODES: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
}
EVENT_CODES = {
    "overloaded_error": "server_is_overloaded",
    "rate_limit_error": "rate_limit_exceeded",
    "api_error": "server_error",
    "invalid_request_error": "invalid_prompt",
}
FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


def error_body(status: int, message: str) -> dict[str, Any]:
    """OpenAI's error object for a status."""
    kind, code = ERROR_CODES.get(status, ("server_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def event_error(kind: str, message: str) -> bytes:
    """An error inside a stream."""
    code = EVENT_CODES.get(kind, kind)
    return sse({"error": {"message": message, "type": "server_error", "param": None, "code": code}})


def reply(turn: Turn, body: dict[str, Any], used: Tokens, issuer: Issuer, reasoning_field: str) -> Reply:
    """The turn in both forms; what it thinks travels in `reasoning_field`."""
    usage = {
        "prompt_tokens": used.prompt,
        "completion_tokens": used.output,
        "total_tokens": used.prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "completion_tokens_details": {"reasoning_tokens": len(turn.thinking) // 4},
    }
    calls = [
        {"id": call_id, "type": "function", "function": {"name": item.name, "arguments": item.raw}}
        for item, call_id in zip(turn.calls, issuer.call_ids(turn, "call"), strict=True)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None, "refusal": None}
    if turn.thinking:
        message[reasoning_field] = turn.thinking
    if calls:
        message["tool_calls"] = calls
    base = {"id": f"chatcmpl-{issuer.new()}", "created": 1764460800, "model": str(body.get("model", ""))}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH[turn.stop]}
    whole = base | {"object": "chat.completion", "choices": [choice], "usage": usage}
    wanted = bool((body.get("stream_options") or {}).get("include_usage"))
    return Reply(whole, _frames(turn, base, calls, usage if wanted else None, reasoning_field))


def _frames(
    turn: Turn,
    base: dict[str, Any],
    calls: list[dict[str, Any]],
    usage: dict[str, Any] | None,
    reasoning_field: str,
) -> list[Frame]:
    extra: dict[str, Any] = {} if usage is None else {"usage": None}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse(base | {"object": "chat.completion.chunk", "choices": [choice]} | extra)

    frames = [Frame(chunk({"role": "assistant", "content": ""}))]
    for piece in pieces(turn.thinking, turn, "thinking"):
        frames.append(Frame(chunk({reasoning_field: piece}), "thinking"))
    for piece in pieces(turn.text, turn, "text"):
        frames.append(Frame(chunk({"content": piece}), "text"))
    for index, made in enumerate(calls):
        function = {"name": made["function"]["name"], "arguments": ""}
        start = {"index": index, "type": "function", "function": function}
        if made["id"]:
            start["id"] = made["id"]
        frames.append(Frame(chunk({"tool_calls": [start]})))
        for piece in pieces(made["function"]["arguments"], turn, "tool"):
            delta = {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            frames.append(Frame(chunk(delta), "tool"))
    frames.append(Frame(chunk({}, FINISH[turn.stop])))
    if usage is not None:
        last = base | {"object": "chat.completion.chunk", "choices": [], "usage": usage}
        frames.append(Frame(sse(last)))
    return [*frames, Frame(b"data: [DONE]\n\n")]
