"""The soak in a small size; `scripts/soak.py` plays 2,000 turns."""

from __future__ import annotations

from pathlib import Path

from tests.reliability.cells import fresh
from tests.reliability.scripted import ScriptedServer
from tests.reliability.sessions import Sessions
from tests.reliability.soak import Soak


async def test_turns_with_faults_and_interrupts_leave_nothing_behind(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        soak = Soak(Sessions(fresh(tmp_path)), server, conversations=3, length=10)
        await soak.run()
    assert soak.played == 30
    assert soak.faults
    assert soak.interrupts
    first, *_, last = soak.samples
    assert (last.handles, last.children, last.tasks) == (first.handles, first.children, first.tasks)
    assert last.threads <= first.threads + 1
