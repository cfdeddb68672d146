"""Anthropic Messages: a turn as a message, its stream events, and its errors."""

from __future__ import annotations

from typing import Any

from tests.model_server.script import Turn
from tests.model_server.wire import Frame, Issuer, Kind, Reply, Tokens, decoded, pieces, sign, sse

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(status: int, message: str) -> dict[str, Any]:
    """The provider's error object for a status."""
    kind = ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def event_error(kind: str, message: str) -> bytes:
    """An error inside a stream."""
    return sse({"type": "error", "error": {"type": kind, "message": message}}, "error")


def reply(turn: Turn, body: dict[str, Any], used: Tokens, issuer: Issuer) -> Reply:
    """The turn in both forms."""
    model = str(body.get("model", ""))
    unsigned = turn.fault is not None and turn.fault.no_signature
    blocks: list[dict[str, Any]] = []
    if turn.thinking:
        signature = "" if unsigned else sign(model, turn.thinking)
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": signature})
    if turn.text:
        blocks.append({"type": "text", "text": turn.text, "citations": None})
    for item, call_id in zip(turn.calls, issuer.call_ids(turn, "toolu"), strict=True):
        blocks.append({"type": "tool_use", "id": call_id, "name": item.name, "input": decoded(item)})
    usage = {
        "input_tokens": used.input,
        "cache_creation_input_tokens": used.cache_write,
        "cache_read_input_tokens": used.cache_read,
        "output_tokens": used.output,
        "service_tier": "standard",
    }
    message = {
        "id": f"msg_{issuer.new()}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": turn.stop,
        "stop_sequence": None,
        "usage": usage,
    }
    return Reply(message, _frames(turn, message, unsigned))


def _frames(turn: Turn, message: dict[str, Any], unsigned: bool) -> list[Frame]:
    usage = message["usage"]
    start = message | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    frames = [_event("message_start", message=start), _event("ping")]
    raws = iter(turn.calls)
    for index, block in enumerate(message["content"]):
        match block["type"]:
            case "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
                frames += _block(
                    turn, index, empty, "thinking", "thinking_delta", "thinking", block["thinking"]
                )
                if not unsigned:
                    signed = {"type": "signature_delta", "signature": block["signature"]}
                    frames.append(_event("content_block_delta", index=index, delta=signed))
            case "text":
                empty = {"type": "text", "text": ""}
                frames += _block(turn, index, empty, "text", "text_delta", "text", block["text"])
            case _:
                empty = block | {"input": {}}
                raw = next(raws).raw
                frames += _block(turn, index, empty, "tool", "input_json_delta", "partial_json", raw)
        frames.append(_event("content_block_stop", index=index))
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    last = {key: value for key, value in usage.items() if key != "service_tier"}
    return [*frames, _event("message_delta", delta=delta, usage=last), _event("message_stop")]


def _block(
    turn: Turn, index: int, empty: dict[str, Any], kind: Kind, delta: str, key: str, text: str
) -> list[Frame]:
    frames = [_event("content_block_start", index=index, content_block=empty)]
    for piece in pieces(text, turn, kind):
        data = {"type": "content_block_delta", "index": index, "delta": {"type": delta, key: piece}}
        frames.append(Frame(sse(data, "content_block_delta"), kind))
    return frames


def _event(name: str, **rest: Any) -> Frame:
    return Frame(sse({"type": name, **rest}, name))
