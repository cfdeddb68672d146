"""What a model wrote as a tool call becomes a `ToolCall`: decoded, or refused with words for the model."""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from letta_code.core.messages import Message, ToolCall, ToolResult
from letta_code.core.text import well_formed

RAW_LIMIT = 2_000
DEPTH_LIMIT = 100
_TOO_DEEP = "it is nested too deeply"
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")  # OpenAI's Chat Completions take no more


def decode(text: str) -> tuple[Mapping[str, Any] | None, str]:
    """The arguments object in `text`, or None and why there is none.

    Control characters inside strings are accepted as they stand, since they have one meaning only. No
    text at all is an object without members: a call without arguments.
    """
    if not text.strip():
        return {}, ""
    try:
        value = _clean(json.loads(text, strict=False), DEPTH_LIMIT)
    except RecursionError:
        return None, f"the arguments are not valid JSON: {_TOO_DEEP}"
    except ValueError as error:
        return None, f"the arguments are not valid JSON: {error}"
    if not isinstance(value, dict):
        return None, f"the arguments must be a JSON object, not {_kind(value)}"
    return value, ""


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {list: "an array", str: "a string", bool: "a boolean"}.get(type(value), "a number")


def _clean(value: Any, depth: int) -> Any:
    """`value` as it can be stored and sent back: Python reads NaN, 1e999 and lone surrogates from JSON,
    and nobody takes them again."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    if isinstance(value, list | dict) and not depth:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): _clean(item, depth - 1) for key, item in value.items()}
    return value


def encode(call: ToolCall) -> Mapping[str, Any]:
    """The arguments object that is sent back for `call`; what could not be read goes back as one member,
    so that the model sees what it wrote and every server gets an object."""
    if call.arguments is not None:
        return call.arguments
    return {"unreadable_arguments": call.raw} if call.raw else {}


def encode_text(call: ToolCall) -> str:
    """`encode` as JSON text."""
    return json.dumps(encode(call), ensure_ascii=False)


class CallIds:
    """Gives every call of a message an id that no other call of the conversation has."""

    def __init__(self, history: Iterable[Message]) -> None:
        self._used = {call.id for message in history for call in message.tool_calls}
        self._used |= {
            block.call_id for message in history for block in message.blocks if isinstance(block, ToolResult)
        }

    def take(self, wanted: str) -> str:
        """`wanted`, or a fresh id where it is empty or taken."""
        wanted = well_formed(wanted)
        chosen = wanted if wanted and wanted not in self._used else f"call_{uuid.uuid4().hex}"
        self._used.add(chosen)
        return chosen


def tool_call(call_id: str, name: str, text: str) -> ToolCall:
    """The call that a model wrote with `text` as its arguments."""
    text = well_formed(text)
    arguments, problem = decode(text)
    raw = text[:RAW_LIMIT] if problem else ""
    return ToolCall(call_id, well_formed(name), arguments, raw, problem)


def plain_id(call_id: str) -> str:
    """`call_id` in the characters every cloud provider accepts; the same id always gives the same."""
    if _PLAIN_ID.match(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:32]


def plain_name(name: str) -> str:
    """The name of a call in the characters every cloud provider accepts: a model may have called a tool by
    a name that no tool can have, and that call is sent back with its error ever after."""
    return _NOT_PLAIN.sub("_", name)[:64] or "unnamed"
