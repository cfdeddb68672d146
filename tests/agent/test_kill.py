"""`kill -9` while a tool runs (shown 5), and at random moments of a long turn of the real program."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

from letta_code.agent.state import AgentStore
from scripts.stress_turn import one_conversation
from tests.agent.support import Bench, Do, Look, Scripted, done, results, said
from tests.conversations.test_log import assert_valid
from tests.conversations.test_log import paths as agent_paths


def kill_in_a_tool(root: Path) -> str:
    """Run the victim until its tool runs, then kill it; returns its conversation's id."""
    command = [sys.executable, "-m", "tests.agent.kill_victim", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        conversation_id = victim.stdout.readline().strip()
        victim.send_signal(signal.SIGKILL)
    return conversation_id


async def test_shown_5_after_kill_9_the_model_is_told_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    conversation_id = kill_in_a_tool(tmp_path)
    paths = agent_paths(tmp_path)
    store = AgentStore(paths)
    bench = Bench(tmp_path, paths, store, store.list()[0], Look(), Do())
    model = Scripted([said("I check first.")])
    session = bench.session(model, conversation_id)
    assert [result.status for result in results(session)] == ["ok", "unknown", "interrupted"]
    assert session.conversation.recovered
    assert done(await bench.turn(session, "go on")).status == "success"
    assert "outcome is unknown" in str(model.requests[0].messages[2])
    assert_valid(session.conversation.messages)
    assert bench.do.ran == []
    await session.close()


def test_shown_2_after_random_kills_nothing_is_lost_or_repeated_and_the_turn_is_finished(
    tmp_path: Path,
) -> None:
    assert len(one_conversation(tmp_path, random.Random(7), 2)) == 2
