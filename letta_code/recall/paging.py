"""Reading stored messages by pointer, from the transcript itself: also when the index is behind.

A pointer is `conversation:message`; the beginning of each id is enough where it fits one only.
"""

from __future__ import annotations

from dataclasses import dataclass

from letta_code.conversations.history import Entry
from letta_code.conversations.store import ConversationStore
from letta_code.core.ids import AgentKey
from letta_code.errors import ConversationError

_SHORT = len("message-1a2b3c4d-5e6f")


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of a conversation that follow one another; `place` is where among them the one is that the
    pointer names, `number` which of all `total` messages that is."""

    agent: AgentKey
    conversation: str
    entries: tuple[Entry, ...]
    place: int
    number: int
    total: int


def page(
    store: ConversationStore,
    pointer: str,
    before: int,
    after: int,
    key: AgentKey | None = None,
    conversation: str = "",
) -> Page:
    """The message that `pointer` names, with up to `before` and `after` messages around it. With `key` only
    this agent's conversations are looked through; `conversation` is meant where the pointer names none.

    Raises:
        ConversationError: there is no such message, or more than one.
    """
    named, _, message = pointer.strip().rpartition(":")
    found = store.find(named or conversation, key)
    entries = store.read(found.id, found.key).entries
    place = _place(entries, message, found.id)
    first = max(0, place - before)
    around = tuple(entries[first : place + after + 1])
    return Page(found.key, found.id, around, place - first, place + 1, len(entries))


def _place(entries: list[Entry], message: str, conversation: str) -> int:
    prefix = message if message.startswith("message-") else f"message-{message}"
    places = [place for place, entry in enumerate(entries) if entry.id.startswith(prefix)]
    if not message or not places:
        raise ConversationError(
            f"there is no message {message[:80]} in {conversation}",
            "a pointer is conversation:message, as searches give it; what was undone is gone",
        )
    exact = [place for place in places if entries[place].id == prefix]
    if len(exact or places) > 1:
        raise ConversationError(f"{message} fits {len(places)} messages", "give more of the id")
    return (exact or places)[0]


def shortened(pointer: str) -> str:
    """A pointer that is as short as it can be and still fits one message only."""
    conversation, _, message = pointer.partition(":")
    return f"{conversation[: len('conv-1a2b3c4d-5e6f')]}:{message[:_SHORT]}"
