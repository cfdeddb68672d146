"""The long session in a small size; `scripts/long_session.py` plays 500 turns through 32,000 tokens."""

from __future__ import annotations

from pathlib import Path

from tests.model_server import ModelServer
from tests.reliability.cells import fresh
from tests.reliability.long_session import LongSession
from tests.reliability.sessions import Sessions


async def test_shown_1_a_conversation_longer_than_its_window_never_sends_too_much_and_keeps_its_task(
    tmp_path: Path,
) -> None:
    with ModelServer([], window=14_000, reported_window=14_000) as server:
        long = LongSession(Sessions(fresh(tmp_path)), server, turns=12, recalled=11, a_session=6)
        await long.run()
    assert {event.mode for event in long.compactions} >= {"sliding_window"}
    assert long.found is True
