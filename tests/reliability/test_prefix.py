"""What a provider has cached of a conversation stays cached, whatever befalls its turns."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from letta_code.agent.session import Session
from letta_code.core.events import Event, TextDelta, TurnDone
from letta_code.core.tooling import ApprovalRequest, Decision
from tests.model_server import ModelServer, Request, call, request_prefix, turn
from tests.reliability.cells import WAYS, Way, fresh
from tests.reliability.sessions import Sessions

LOOK = call("LS", path=".")
CUT = {"drop": "mid", "how": "eof"}
SCRIPT = [
    turn("I look.", LOOK, thinking="First I look.", fault={**CUT, "times": 1}),
    turn("I look.", LOOK, thinking="First I look."),
    turn("One.", fault={"status": 529, "times": 2}),
    turn("One.", thinking="That was it."),
    turn("", LOOK, {"name": "LS", "raw": '{"path": '}, call("LS", "a b", path="a.py"), thinking="Again."),
    turn("Two, which never comes to its end.", fault={**CUT, "times": 6}),
    turn("", LOOK, thinking="Once more."),
    turn("Three, which is stopped. " * 9, fault={"stall": "forever", "after": 8}),
    turn(fault={"status": 400, "message": "odd"}, when={"contains": "GONE"}),
    turn("Five.", thinking="Well."),
    turn("Six."),
]


async def _said(session: Session, text: str, stop: type[Event] | None = None) -> str:
    running = session.turn(text, _nobody)
    status = ""
    async for event in running.events():
        if stop is not None and isinstance(event, stop):
            running.cancel()
        if isinstance(event, TurnDone):
            status = event.status
    return status


async def _nobody(request: ApprovalRequest) -> Decision:
    return Decision("deny", "nobody is there to ask")


def _cached(request: Request) -> str:
    assert request.dialect is not None
    return "\n".join(request_prefix(request.body, request.dialect))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.provider)
async def test_faults_retries_interrupts_and_a_resumption_change_nothing_of_what_was_sent(
    tmp_path: Path, way: Way
) -> None:
    sessions = Sessions(fresh(tmp_path))
    with ModelServer(SCRIPT) as server:
        async with sessions.open(way, server.url) as session:
            ends = [await _said(session, "one"), await _said(session, "two")]
            ends.append(await _said(session, "three", TextDelta))
        conversation = session.conversation.id
        async with sessions.open(way, server.url, conversation=conversation) as session:
            ends += [await _said(session, "GONE"), await _said(session, "five")]
        async with sessions.open(way, server.url, conversation=conversation) as session:
            ends.append(await _said(session, "six"))
        assert ends == ["success", "error", "interrupted", "error", "success", "success"]
        assert server.violations == []
        server.assert_finished()
        kept = [item for item in server.requests if "GONE" not in item.raw.decode()]
    assert len(kept) == len(server.requests) - 1
    for before, after in itertools.pairwise(kept):
        assert _cached(after).startswith(_cached(before).rstrip('"]}'))  # later words may lengthen its end
