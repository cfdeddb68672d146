"""Strict mode: what each provider refuses, in its own words."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.model_server.anthropic_rules import check_anthropic
from tests.model_server.chat_rules import check_chat
from tests.model_server.responses_rules import check_responses
from tests.model_server.script import Turn
from tests.model_server.wire import Dialect


@dataclass(slots=True)
class Rules:
    """Checks requests. `trusted` are signatures and encrypted contents to accept although this server
    would not have made them; `reasoning_field` is the field that must be echoed, or None."""

    trusted: frozenset[str] = frozenset()
    strict_alternation: bool = False
    reasoning_field: str | None = None
    _reasoned: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def issued(self, turn: Turn, body: Any, dialect: Dialect) -> None:
        """Remember which reasoning went with which tool calls."""
        if dialect == "openai-chat" and turn.thinking:
            calls = body["choices"][0]["message"].get("tool_calls", ())
            with self._lock:
                self._reasoned.update({made["id"]: turn.thinking for made in calls})

    def check(self, body: dict[str, Any], headers: Mapping[str, str], dialect: Dialect) -> str | None:
        """Why the provider would refuse the request, or None."""
        match dialect:
            case "anthropic":
                return check_anthropic(body, headers, self.trusted)
            case "openai-responses":
                return check_responses(body, self.trusted)
            case _:
                with self._lock:
                    reasoned = dict(self._reasoned) if self.reasoning_field else {}
                field_name = self.reasoning_field or ""
                return check_chat(body, self.strict_alternation, field_name, reasoned)
