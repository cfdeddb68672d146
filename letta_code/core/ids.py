"""Identifiers, and the check each one passes before it may become part of a path.

Ids are lower-case ASCII, so that two different ids never meet on a file system that folds case or
normalises Unicode.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from letta_code.errors import UsageError

DEFAULT_ORG = "org-00000000-0000-4000-8000-000000000000"
"""Letta's own default organisation."""

_ID = re.compile(r"(org|agent|conv)-[a-z0-9]+(?:-[a-z0-9]+)*\Z")


def checked_id(value: str, kind: str) -> str:
    """Return `value` when it is a well-formed id of `kind` ("org", "agent" or "conv").

    Raises:
        UsageError: it is not (wrong prefix, upper case, a path separator, over 80 characters, …).
    """
    match = _ID.match(value)
    if match is None or match.group(1) != kind or len(value) > 80:
        raise UsageError(
            f"not a valid {kind} id: {value[:100]!r}",
            f"an id looks like {kind}-<uuid>: lower-case letters, digits and single dashes",
        )
    return value


def new_agent_id() -> str:
    """A fresh `agent-<uuid4>`."""
    return f"agent-{uuid.uuid4()}"


def new_conversation_id() -> str:
    """A fresh `conv-<uuid4>`."""
    return f"conv-{uuid.uuid4()}"


def new_message_id() -> str:
    """A fresh `message-<uuid4>`, unique in every conversation."""
    return f"message-{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class AgentKey:
    """The key of everything that belongs to an agent: organisation and agent id, both checked."""

    org: str
    agent: str

    def __post_init__(self) -> None:
        checked_id(self.org, "org")
        checked_id(self.agent, "agent")
