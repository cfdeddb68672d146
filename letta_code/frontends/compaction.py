"""Compactions in words, and the chat's `/compact`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from letta_code.core.events import Compacted, Event, Notice, Retrying
from letta_code.core.text import one_line

if TYPE_CHECKING:
    from letta_code.frontends.host import Session

_WHY = {
    "preflight": "the next request would not have fitted",
    "threshold": "the window was nearly full",
    "overflow": "the server found the request too long",
    "manual": "as you asked",
}
NOTHING = "there is nothing to compact yet"


def compacted_line(event: Compacted) -> str:
    """One line of what a compaction did."""
    messages = f"{event.messages:,} message{'' if event.messages == 1 else 's'}"
    how = {"shortened": "large tool results shortened", "cut": f"{messages} left out without a summary"}.get(
        event.mode, f"{messages} summarised"
    )
    return f"compacted, {_WHY[event.trigger]}: {how}, {event.before:,} → {event.after:,} tokens"


def line_of(event: Event) -> str | None:
    """What is said of an event while a conversation is compacted outside a turn."""
    match event:
        case Compacted():
            return compacted_line(event)
        case Retrying(attempt=attempt, wait=wait, reason=reason):
            return f"retry {attempt} in {wait:.0f} s: {one_line(reason, 200)}"
        case Notice(level=level, text=text):
            return f"warning: {text}" if level == "warning" else text
        case _:
            return None


async def run_compact(instructions: str, session: Session, say: Callable[[str], None]) -> Compacted | None:
    """Compact the conversation as the person asks and say what was done.

    Raises:
        LettaError: it cannot be done; the conversation is as it was.
    """

    def show(event: Event) -> None:
        if (line := line_of(event)) is not None:
            say(line)

    done = await session.compact(instructions, show)
    if done is None:
        say(NOTHING)
    return done
