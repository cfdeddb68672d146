"""A compacted conversation with thinking and calls goes on with every provider, behind strict servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from letta_code.core.events import Compacted
from tests.model_server import ModelServer, call, turn
from tests.reliability.cells import WAYS, fresh, other_way
from tests.reliability.sessions import Sessions, events_of

LONG = "What was seen was seen, and what was not is still to be looked for in that place. " * 30
SUMMARISER = turn("Goal: look.", when={"anywhere": "You write the summary"}, repeat=True)


def looking(text: str) -> list[Any]:
    return [turn("", call("LS", path="."), thinking="I think."), turn(text, thinking="Done.")]


async def test_d10_c19_a_compacted_conversation_goes_on_in_every_dialect(tmp_path: Path) -> None:
    for number, way in enumerate(WAYS):
        sessions = Sessions(fresh(tmp_path / str(number)))
        script = [turn(LONG), *looking("Seen."), SUMMARISER, turn("Same.")]
        with ModelServer(script) as server:
            async with sessions.open(way, server.url) as session:
                for words in ("One.", "Two."):
                    assert (await events_of(session, words))[1].error is None
                made = await session.compact("", lambda _: None)
                assert isinstance(made, Compacted)
                assert made.mode == "sliding_window"
                kept = [entry.message for entry in session.conversation.history.visible]
                assert any(block.type == "thinking" for message in kept for block in message.blocks)
                assert (await events_of(session, "Go on."))[1].text == "Same."
                conversation = session.conversation.id
            assert server.violations == []
        with ModelServer(looking("Other.")) as server:
            async with sessions.open(other_way(way), server.url, conversation=conversation) as session:
                assert (await events_of(session, "Once more."))[1].text == "Other."
            assert server.violations == []
            assert "Goal: look." in server.requests[-1].raw.decode()
            assert "Once more." in server.requests[-1].raw.decode()
