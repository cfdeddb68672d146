"""Messages and events ⇄ JSON objects, by one rule for all of them.

The shape is the dataclass's own: field names as keys, the `type` field as discriminator. Decoding is
strict: an unknown type, an unknown role or a missing field is a `ValueError`. Lines are ASCII, so that
no separator inside a text (U+2028, a raw newline) can break line reading.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from letta_code.core.events import Event
from letta_code.core.messages import JSON, Message, ToolResult


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dump(value: object) -> JSON:
    """Turn a core value (or a container of them) into plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: dump(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): dump(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [dump(item) for item in value]
    return value


def to_line(value: object) -> str:
    """One line of ASCII JSON for `value`, without the newline."""
    return json.dumps(dump(value), ensure_ascii=True, separators=(",", ":"))


def load_message(data: JSON) -> Message:
    """The message that `dump` wrote. Raises `ValueError` for anything else."""
    return _adapter(Message).validate_python(data)  # type: ignore[no-any-return]


def load_result(data: JSON) -> ToolResult:
    """The tool result that `dump` wrote. Raises `ValueError` for anything else."""
    return _adapter(ToolResult).validate_python(data)  # type: ignore[no-any-return]


def load_event(data: JSON) -> Event:
    """The event that `dump` wrote. Raises `ValueError` for anything else."""
    return _adapter(Event).validate_python(data)  # type: ignore[no-any-return]
