"""`conversation_search` in whole turns: what the model finds and reads, and what it cannot reach."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.core.messages import ToolCall, ToolResult
from letta_code.core.tooling import Decision
from letta_code.tools.permissions.policy import Policy
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.recall import ConversationSearch
from letta_code.tools.toolbox import Toolbox
from tests.agent.support import Bench, Scripted, asked, said
from tests.recall.support import Memories, turn


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.make(tmp_path)


async def told(bench: Bench, *arguments: dict[str, object], text: str = "go") -> list[str]:
    """What the tool says to calls with these arguments, one after the other in one turn."""
    steps = [asked((f"s{number}", "conversation_search", each)) for number, each in enumerate(arguments)]
    session = bench.session(Scripted([*steps, said("Done.")]))
    session.toolbox = Toolbox([ConversationSearch(bench.paths, bench.state.key)])
    session.policy = Policy("plan", Rules(), session.workspace)
    bench.decisions = [Decision("deny")] * 10
    try:
        await bench.turn(session, text)
        blocks = [block for message in session.conversation.messages for block in message.blocks]
        return [block.text for block in blocks if isinstance(block, ToolResult)]
    finally:
        await session.close()


@pytest.fixture
def memories(bench: Bench) -> Memories:
    return Memories(bench.root, bench.paths)


async def test_the_model_finds_a_message_and_reads_around_it(bench: Bench, memories: Memories) -> None:
    stored = memories.told("the heron sleeps", "the deploy key is in vault 7", key=bench.state.key)
    (found,) = await told(bench, {"query": "deploy vault"}, text="where is the deploy key, in which vault?")
    assert found.startswith("1 message has all of that; 1 shown")
    assert "the **deploy** key is in **vault** 7" in found  # the question itself is no hit
    pointer = re.findall(r"\[(conv-\S+)", found)[0]
    assert stored.id.startswith(pointer.partition(":")[0])
    (read,) = await told(bench, {"around": pointer, "before": 1, "after": 1})
    assert read.startswith(f"Message 3 of 4 of {stored.id}")
    assert re.findall(r"\n(► )?\[message-\S+ · (\w+)", read) == [
        ("", "assistant"),
        ("► ", "user"),
        ("", "assistant"),
    ]
    (wide,) = await told(bench, {"query": "deploy vault", "before": 1})
    assert "  assistant: noted\n[conv-" in "\n" + wide.replace("\n\n", "\n")
    assert bench.questions == []


async def test_a_long_result_is_read_part_by_part(bench: Bench, memories: Memories) -> None:
    conversation = memories.begin(bench.state.key)
    text = "".join(f"line {number}\n" for number in range(5_000))
    turn(conversation, "look", calls=[(ToolCall("c", "Read", {"file_path": "heron.txt"}), text)])
    conversation.close()
    result = conversation.history.entries[2]
    around = {"around": f"{conversation.id}:{result.id}", "before": 0, "after": 0}
    first, second, last = await told(bench, around, around | {"offset": 20_000}, around | {"offset": 40_000})
    assert "line 0\n" in first
    assert "[characters 0 to 20,000 of 48,891; offset 20000 goes on]" in first
    assert "offset 40000 goes on" in second
    assert "line 4999" in last
    assert last.endswith("of 48,891]")


async def test_no_answer_is_larger_than_what_is_worth_reading(bench: Bench, memories: Memories) -> None:
    stored = memories.told(*(f"heron {number} {'word ' * 400}" for number in range(60)), key=bench.state.key)
    pointer = f"{stored.id}:{stored.history.entries[60].id}"
    wide, page = await told(
        bench,
        {"query": "heron", "limit": 50, "before": 50, "after": 50},
        {"around": pointer, "before": 50, "after": 50},
    )
    assert len(wide) < 25_000
    assert "more are left out: ask for fewer" in wide
    assert len(page) < 45_000
    assert "characters more]" in page


async def test_another_agents_messages_are_out_of_reach(bench: Bench, memories: Memories) -> None:
    theirs = memories.told("the other's heron", key=AgentKey(DEFAULT_ORG, "agent-2"))
    pointer = f"{theirs.id}:{theirs.history.entries[0].id}"
    answers = await told(
        bench,
        {"query": "heron"},
        {"query": "heron", "conversation": theirs.id},
        {"around": pointer},
        {"query": "", "start_date": "2020-01-01"},
    )
    assert not any("other's" in answer for answer in answers)
    assert [
        answer.startswith(("No message", f"there is no conversation {theirs.id}")) for answer in answers
    ] == [True] * 4


async def test_odd_arguments_are_answered_in_words(bench: Bench, memories: Memories) -> None:
    memories.told("the heron sleeps", key=bench.state.key)
    answers = await told(
        bench,
        {"query": "heron", "start_date": "yesterday"},
        {"query": "heron", "start_date": "2999-01-01"},
        {"query": "((("},
        {"query": "heron zebra", "roles": ["user"]},
        {"query": "heron", "limit": 0},
        {"around": "message-nowhere"},
        {"query": "heron", "conversation": "current"},
    )
    wanted = (
        *("is no date or time", "No message was found", "No message was found", "these have some of it"),
        *("limit", "there is no message", "No message was found"),
    )
    for answer, words in zip(answers, wanted, strict=True):
        assert words in answer
