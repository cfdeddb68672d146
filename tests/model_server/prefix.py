"""What of a request a provider's cache sees, piece by piece, in the order in which it is cached."""

from __future__ import annotations

import json
from typing import Any

from tests.model_server.wire import Dialect


def request_prefix(body: dict[str, Any], dialect: Dialect) -> list[str]:
    """Tools, system prompt, then each message, as JSON text without cache marks.

    Nothing is sorted or tidied: two requests share a prefix when the pieces of the first are the first
    pieces of the second. In Chat Completions the system prompt is a message like the others.
    """
    system = {"anthropic": "system", "openai-responses": "instructions", "openai-chat": None}[dialect]
    head = [body.get("tools"), *([body.get(system)] if system else [])]
    given = body.get("input") if dialect == "openai-responses" else body.get("messages")
    messages = given if isinstance(given, list) else [given]
    return [json.dumps(_unmarked(piece), ensure_ascii=False) for piece in (*head, *messages)]


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key not in _MARKS}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value


_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
