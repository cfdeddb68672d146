"""The fault matrix, small enough for every run of the tests: each fault in one dialect, in this process; a
few as processes of their own and in the chat. `scripts/fault_matrix.py` runs every cell as a person would.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from letta_code.core.events import Notice
from tests.model_server import ModelServer, turn
from tests.reliability import cells
from tests.reliability.cells import FORMS, RESUME, RESUMED, WAYS, Way, fresh, other_way
from tests.reliability.faults import FAULTS, PROMPT, Answered, Fault
from tests.reliability.sessions import Sessions, events_of
from tests.reliability.table import DOCUMENT, HELD, rows

BY_NAME = {fault.name: fault for fault in FAULTS}
TURNS = [(fault, WAYS[number % len(WAYS)]) for number, fault in enumerate(FAULTS)]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    return Sessions(fresh(tmp_path_factory.mktemp("sessions")))


@pytest.mark.parametrize(("fault", "way"), TURNS, ids=lambda value: value.name)
async def test_c01_c05_c07_c10_c12_c15_c16_f03_every_fault_ends_well_and_the_conversation_goes_on(
    fault: Fault, way: Way, sessions: Sessions
) -> None:
    with cells.place_of(fault) as (server, url):
        async with sessions.open(way, url, fault=fault) as session:
            events, done = await events_of(session, PROMPT)
        assert cells.requests_wrong(fault, server) == []
    warnings = [event.text for event in events if isinstance(event, Notice) and event.level == "warning"]
    if isinstance(fault.end, Answered):
        assert (done.status, done.text, done.error) == ("success", fault.end.text, None)
        assert [fault.end.warning in warning for warning in warnings] == [True] * bool(fault.end.warning)
    else:
        assert done.error is not None
        assert (done.status, done.error.exit_code, warnings) == ("error", fault.end.code, [])
        assert fault.end.words in done.error.message
        assert "\n" not in done.error.message + done.error.hint
        assert done.error.kind != "bug"
    other = other_way(way)
    with ModelServer([turn(RESUMED, thinking="Where were we?")]) as server:
        async with sessions.open(other, server.url, conversation=session.conversation.id) as resumed:
            _, done = await events_of(resumed, RESUME)
        assert (done.status, done.text, server.violations) == ("success", RESUMED, [])
        assert cells.conversation_wrong(fault, other.handle, server.requests, "one-shot") == []


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("529 for good", WAYS[0]),
        ("arguments cut in the middle", WAYS[1]),
        ("a thought of another model", WAYS[1]),
        ("stream cut for good, after a step", WAYS[2]),
        ("empty answers", WAYS[0]),
    ],
    ids=str,
)
def test_c03_faults_in_a_process_of_its_own(name: str, way: Way, tmp_path: Path) -> None:
    assert cells.play(BY_NAME[name], way, "one-shot", tmp_path) == []


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("401", WAYS[2]),
        ("nothing listens", WAYS[0]),
        ("stream reset in a call", WAYS[1]),
        ("duplicate call ids", WAYS[2]),
        ("a refusal, after a step", WAYS[0]),
    ],
    ids=str,
)
def test_c15_a_chat_survives_faults(name: str, way: Way, tmp_path: Path) -> None:
    assert cells.play(BY_NAME[name], way, "chat", tmp_path) == []


def test_the_table_in_the_documentation_is_of_these_faults_and_none_failed() -> None:
    table = rows(DOCUMENT.read_text("utf-8"))
    assert [row[:2] for row in table] == [[fault.name, str(fault.end)] for fault in FAULTS]
    assert all(row[2:] == [HELD] * len(WAYS) * len(FORMS) for row in table)


def test_the_list_has_both_ends_and_no_fault_twice() -> None:
    assert len(BY_NAME) == len(FAULTS)
    assert {type(fault.end).__name__ for fault in FAULTS} == {"Answered", "Told"}
    assert all(isinstance(fault.end, Answered) or fault.end.code in (1, 75) for fault in FAULTS)
