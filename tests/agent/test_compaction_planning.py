"""Plans of compactions, for any conversation in any window: pure, so without a model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.agent.compaction.planning import Item, Room, Task, plans
from letta_code.agent.compaction.settings import CompactionSettings
from letta_code.agent.counting import message_tokens
from letta_code.conversations.compaction import with_results
from letta_code.conversations.history import Entry
from letta_code.core.messages import Image, Message, Text, ToolCall, ToolResult

WORD = "word "
STEP = st.lists(st.tuples(st.integers(0, 1_200), st.booleans()), max_size=2)
TURN = st.tuples(st.integers(1, 600), st.lists(STEP, max_size=3))


def conversation(turns: list[tuple[int, list[list[tuple[int, bool]]]]], summary: bool) -> list[Item]:
    found: list[Item] = []

    def add(turn: int, message: Message) -> None:
        entry = Entry(f"message-{len(found)}", "", turn, message)
        found.append(Item(entry, message_tokens(message), message))

    if summary:
        add(1, Message("user", (Text("<conversation_summary> " + WORD * 50),), "harness"))
    for number, (words, steps) in enumerate(turns, 1):
        add(number, Message("user", (Text(WORD * words),)))
        for at, results in enumerate(steps):
            ids = [f"c{number}-{at}-{index}" for index in range(len(results))]
            calls = tuple(ToolCall(call, "Look", {}) for call in ids)
            add(number, Message("assistant", (Text("I look."), *calls), "agent"))
            if not ids:
                continue
            blocks = tuple(
                ToolResult(call, (Text(WORD * size + "."), *((Image("image/png", ""),) if picture else ())))
                for call, (size, picture) in zip(ids, results, strict=True)
            )
            add(number, Message("tool", blocks, "harness"))
    return found


@given(
    turns=st.lists(TURN, min_size=1, max_size=5),
    summary=st.booleans(),
    window=st.integers(1_000, 8_000),
    floor=st.integers(0, 1_600),
    mode=st.sampled_from(["sliding_window", "all"]),
    running=st.booleans(),
    forced=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_every_plan_fits_is_cut_between_steps_and_keeps_the_running_turn(
    turns: list[tuple[int, list[list[tuple[int, bool]]]]],
    summary: bool,
    window: int,
    floor: int,
    mode: str,
    running: bool,
    forced: bool,
) -> None:
    items = conversation(turns, summary)
    room = Room(window, window * 4 // 5, floor, max(60, window // 20))
    chosen = CompactionSettings(mode="all" if mode == "all" else "sliding_window")
    turn = len(turns) if running else 0
    task = Task(items, room, chosen, turn, forced, lambda entry: f"conv-1:{entry}", message_tokens)
    found = plans(task)
    assert plans(task) == found
    last = next((item.entry.id for item in items if item.entry.turn == turn and not item.is_summary), "")
    for plan in found:
        changed = [with_results(item.entry.message, plan.shortened.get(item.entry.id, {})) for item in items]
        kept = changed[plan.cut :]
        sizes = [message_tokens(message) for message in changed]
        assert all(new <= item.tokens for new, item in zip(sizes, items, strict=True))
        spared = [index for index, item in enumerate(items[: plan.cut]) if item.entry.id == plan.words]
        assert plan.kept == floor + sum(sizes[plan.cut :]) + sum(sizes[index] for index in spared)
        assert plan.kept <= room.limit
        assert not kept or kept[0].role in ("user", "assistant")
        if running:
            assert plan.words == last or any(item.entry.id == last for item in items[plan.cut :])
        if plan.mode == "shortened":
            assert (plan.cut, bool(plan.shortened)) == (0, True)
        else:
            assert plan.gone >= 300
            assert not all(item.is_summary for item in items[: plan.cut] if item.entry.id != plan.words)
    if mode == "all":
        assert all(plan.mode != "sliding_window" for plan in found)
    for entry, texts in ((entry, texts) for plan in found for entry, texts in plan.shortened.items()):
        assert all(f"the whole result is conv-1:{entry}]" in text for text in texts.values())
