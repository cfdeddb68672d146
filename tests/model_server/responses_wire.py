"""OpenAI Responses: a turn as a response with its items, and every event of its stream.

Item ids tell what belongs together: the items after a reasoning item `rs_H` are `msg_Hr0`, `fc_Hr1`, …;
without reasoning they are `msg_Hn0`, … The validator reads them again.
"""

from __future__ import annotations

import itertools
from typing import Any

from tests.model_server.chat_wire import EVENT_CODES
from tests.model_server.script import Turn
from tests.model_server.wire import Frame, Issuer, Kind, Reply, Tokens, pieces, sign, sse


def event_error(kind: str, message: str, form: str) -> bytes:
    """An error inside a stream: an `error` event, or a `response.failed` one."""
    code = EVENT_CODES.get(kind, kind)
    if form == "event":
        data = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 999}
        return sse(data, "error")
    failed = _response({}, "resp_failed", "failed") | {"error": {"code": code, "message": message}}
    event = {"type": "response.failed", "response": failed, "sequence_number": 999}
    return sse(event, "response.failed")


def reply(turn: Turn, body: dict[str, Any], used: Tokens, issuer: Issuer) -> Reply:
    """The turn in both forms."""
    items = _items(turn, str(body.get("model", "")), issuer)
    short = turn.stop == "max_tokens"
    usage = {
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": len(turn.thinking) // 4},
        "total_tokens": used.prompt + used.output,
    }
    begun = _response(body, f"resp_{issuer.new()}", "in_progress")
    whole = begun | {"status": "incomplete" if short else "completed", "output": items, "usage": usage}
    if short:
        whole["incomplete_details"] = {"reason": "max_output_tokens"}
    return Reply(whole, _frames(turn, begun, whole))


def _response(body: dict[str, Any], response_id: str, status: str) -> dict[str, Any]:
    return {
        "id": response_id,
        "object": "response",
        "created_at": 1764460800,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": {},
        "model": str(body.get("model", "")),
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
    }


def _items(turn: Turn, model: str, issuer: Issuer) -> list[dict[str, Any]]:
    tag = issuer.new()
    mark = f"{tag}{'r' if turn.thinking else 'n'}"
    items: list[dict[str, Any]] = []
    if turn.thinking:
        unsigned = turn.fault is not None and turn.fault.no_signature
        items.append(
            {
                "id": f"rs_{tag}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": turn.thinking}],
                "encrypted_content": None if unsigned else sign(model, turn.thinking),
            }
        )
    if turn.text:
        part: dict[str, Any] = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        if turn.stop == "refusal":
            part = {"type": "refusal", "refusal": turn.text}
        status = "incomplete" if turn.stop == "max_tokens" and not turn.calls else "completed"
        message = {"id": f"msg_{mark}0", "type": "message", "status": status, "role": "assistant"}
        items.append(message | {"content": [part]})
    for index, (item, call_id) in enumerate(zip(turn.calls, issuer.call_ids(turn, "call"), strict=True), 1):
        made = {"id": f"fc_{mark}{index}", "type": "function_call", "status": "completed"}
        items.append(made | {"call_id": call_id, "name": item.name, "arguments": item.raw})
    return items


class _Events:
    """Frames with their running sequence number."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._number = itertools.count()

    def add(self, name: str, kind: Kind = "other", /, **rest: Any) -> None:
        data = {"type": f"response.{name}", **rest, "sequence_number": next(self._number)}
        self.frames.append(Frame(sse(data, f"response.{name}"), kind))


def _frames(turn: Turn, begun: dict[str, Any], whole: dict[str, Any]) -> list[Frame]:
    events = _Events()
    events.add("created", response=begun)
    events.add("in_progress", response=begun)
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index}
        match item["type"]:
            case "reasoning":
                empty = item | {"summary": [], "encrypted_content": ""}
                events.add("output_item.added", output_index=index, item=empty)
                _reasoning(events, turn, place)
            case "message":
                events.add("output_item.added", output_index=index, item=item | {"content": []} | _RUNNING)
                _message(events, turn, place, item["content"][0])
            case _:
                events.add("output_item.added", output_index=index, item=item | {"arguments": ""} | _RUNNING)
                for piece in pieces(item["arguments"], turn, "tool"):
                    events.add("function_call_arguments.delta", "tool", **place, delta=piece)
                done = {"arguments": item["arguments"], "name": item["name"]}
                events.add("function_call_arguments.done", **place, **done)
        events.add("output_item.done", output_index=index, item=item)
    events.add(whole["status"], response=whole)
    return events.frames


_RUNNING = {"status": "in_progress"}


def _reasoning(events: _Events, turn: Turn, place: dict[str, Any]) -> None:
    place = place | {"summary_index": 0}
    events.add("reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
    for piece in pieces(turn.thinking, turn, "thinking"):
        events.add("reasoning_summary_text.delta", "thinking", **place, delta=piece)
    events.add("reasoning_summary_text.done", **place, text=turn.thinking)
    events.add("reasoning_summary_part.done", **place, part={"type": "summary_text", "text": turn.thinking})


def _message(events: _Events, turn: Turn, place: dict[str, Any], part: dict[str, Any]) -> None:
    place = place | {"content_index": 0}
    refusal = part["type"] == "refusal"
    key = "refusal" if refusal else "text"
    name = "refusal" if refusal else "output_text"
    extra: dict[str, Any] = {} if refusal else {"logprobs": []}
    events.add("content_part.added", **place, part=part | {key: ""})
    for piece in pieces(turn.text, turn, "text"):
        events.add(f"{name}.delta", "text", **place, delta=piece, **extra)
    events.add(f"{name}.done", **place, **{key: turn.text}, **extra)
    events.add("content_part.done", **place, part=part)
