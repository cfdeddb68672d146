"""Broken answers, retries and the fallback: what the person is shown, what is kept, what is sent next."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.agent.retry import RetryPolicy
from letta_code.agent.session import Fallback
from letta_code.conversations.store import ConversationStore
from letta_code.core.events import (
    AnswerBroken,
    Event,
    FallbackUsed,
    PromptReady,
    Retrying,
    TextDelta,
    TurnDone,
)
from letta_code.core.messages import Message, Text, Thinking, Usage
from letta_code.errors import ModelError, UsageError
from letta_code.memory.git.repository import Author
from letta_code.models.base import Completed, Model
from tests.agent.support import Bench, Scripted, asked, check, done, said

BROKEN = ModelError("closed early", "broken_stream")
BUSY = ModelError("unreachable", "overloaded")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.make(tmp_path)


def busy(times: int = 6) -> list[ModelError]:
    """Nobody answers, and nothing is shown."""
    return [BUSY] * times


def other(*steps: Completed | ModelError, system_messages: bool = True) -> Scripted:
    return Scripted(list(steps), system_messages, "test/other")


def fallback(model: Scripted, opened: list[str] | None = None) -> Fallback:
    def open_it() -> Model:
        if opened is not None:
            opened.append(model.handle)
        return model

    return Fallback(model.handle, open_it)


def of(events: list[Event], *kinds: type) -> list[str]:
    return [event.type for event in events if isinstance(event, kinds)]


async def test_c15_words_that_broke_off_are_marked_kept_and_never_sent(bench: Bench) -> None:
    model = Scripted([BROKEN, BROKEN, said("whole"), said("next")])
    session = bench.session(model)
    events = await bench.turn(session)
    assert of(events, TextDelta, AnswerBroken, Retrying) == [
        *(["text_delta", "answer_broken", "retrying"] * 2),
        "text_delta",
    ]
    broken = [event for event in events if isinstance(event, AnswerBroken)]
    assert [(event.step, event.text, event.reason) for event in broken] == [(1, "half", "closed early")] * 2
    assert (done(events).text, done(events).partial) == ("whole", "")
    await bench.turn(session, "more")
    assert [message.text for message in model.requests[-1].messages] == ["go", "whole", "more"]
    await session.close()
    kept = ConversationStore(bench.paths).read(session.conversation.id).partials
    assert [(item.turn, item.step, item.text, item.model, item.before) for item in kept] == [
        (1, 1, "half", "test/model", 1)
    ] * 2


@pytest.mark.parametrize("how", ["failed", "interrupted", "refused", "bug"])
async def test_c14_c15_a_turn_that_ends_in_the_middle_of_an_answer_offers_it_marked(
    bench: Bench, how: str
) -> None:
    silent = asyncio.Event()
    last: dict[str, Completed | Exception | asyncio.Event] = {
        "failed": ModelError("no", "auth"),
        "interrupted": silent,
        "refused": said("half", stop="refusal"),
        "bug": RuntimeError("oops"),
    }
    model = Scripted([asked(("a", "Look", {})), last[how], said("on")])
    session = bench.session(model)
    turn = session.turn("go", bench.ask)
    events = []
    async for event in turn.events():
        events.append(event)
        if isinstance(event, TextDelta) and how == "interrupted":
            turn.cancel()
    check(events)
    assert done(events).status == ("interrupted" if how == "interrupted" else "error")
    assert (done(events).text, done(events).partial) == ("", "half")
    assert isinstance(events[-2], AnswerBroken)
    assert done(await bench.turn(session, "and?")).text == "on"
    assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "tool", "user"]
    await session.close()
    (kept,) = ConversationStore(bench.paths).read(session.conversation.id).partials
    assert (kept.turn, kept.step, kept.text, kept.before) == (1, 2, "half", 3)


async def test_an_input_that_is_dropped_leaves_the_words_before_what_came_next(bench: Bench) -> None:
    session = bench.session(Scripted([said("no", stop="refusal"), said("fine")]))
    await bench.turn(session, "bad")
    await bench.turn(session, "good")
    await session.close()
    history = ConversationStore(bench.paths).read(session.conversation.id)
    assert [(item.text, item.before) for item in history.partials] == [("no", 0)]
    assert [entry.message.text for entry in history.entries] == ["good", "fine"]


async def test_thoughts_without_an_answer_are_kept_as_thoughts(bench: Bench) -> None:
    blocks = (Thinking("hm", "anthropic", "test/model"),)
    empty = Completed(Message("assistant", blocks, "agent"), Usage(), "end_turn")
    session = bench.session(Scripted([empty, said("yes")]))
    events = await bench.turn(session)
    assert of(events, Retrying) == ["retrying"]
    assert done(events).text == "yes"
    await session.close()


# The fallback -------------------------------------------------------------------------------------


async def test_the_fallback_goes_on_with_the_turn_and_the_next_turn_asks_the_main_model(bench: Bench) -> None:
    main = Scripted([*busy(), said("I am back")])
    spare = other(asked(("a", "Look", {})), said("Done."))
    opened: list[str] = []
    session = bench.session(main, fallback=fallback(spare, opened))
    events = await bench.turn(session)
    assert of(events, Retrying, FallbackUsed) == ["retrying"] * 5 + ["fallback_used"]
    used = next(event for event in events if isinstance(event, FallbackUsed))
    assert (used.model, used.instead_of, used.reason) == ("test/other", "test/model", "unreachable")
    assert (done(events).text, done(events).steps) == ("Done.", 2)
    assert len(main.requests) == 6
    assert [step.sent.model for step in session.conversation.history.steps] == ["test/other"] * 2
    assert done(await bench.turn(session, "more")).text == "I am back"
    assert opened == ["test/other"]
    await session.close()
    steps = ConversationStore(bench.paths).read(session.conversation.id).steps
    assert [(step.sent.model, step.sent.chosen) for step in steps] == [
        *([("test/other", "test/model")] * 2),
        ("test/model", "test/model"),
    ]


async def test_the_fallback_is_not_opened_without_need(bench: Bench) -> None:
    opened: list[str] = []
    session = bench.session(Scripted([BROKEN, said("ok")]), fallback=fallback(other(), opened))
    assert done(await bench.turn(session)).text == "ok"
    await session.close()
    assert opened == []


async def test_c12_a_wait_that_is_too_long_switches_at_once(bench: Bench) -> None:
    main = Scripted([ModelError("unreachable", "rate_limited", retry_after=61)])
    session = bench.session(main, fallback=fallback(other(said("here"))))
    events = await bench.turn(session)
    assert of(events, Retrying) == []
    assert done(events).text == "here"
    await session.close()


@pytest.mark.parametrize("kind", ["auth", "not_found", "invalid_request", "context_overflow", "untrusted"])
async def test_what_the_person_must_mend_is_no_reason_to_fall_back(bench: Bench, kind: str) -> None:
    error = ModelError("no", kind)  # type: ignore[arg-type]
    session = bench.session(Scripted([error]), fallback=fallback(other(said("here"))))
    last = done(await bench.turn(session))
    assert last.error is not None
    assert (last.error.kind, last.error.exit_code) == (kind, 1)
    await session.close()


@pytest.mark.parametrize("second", ["auth", "overloaded"])
async def test_when_both_fail_one_line_names_both(bench: Bench, second: str) -> None:
    failing = [ModelError("broke too", second)] * 6  # type: ignore[arg-type]
    spare = other(*failing)
    session = bench.session(Scripted(list(busy())), fallback=fallback(spare))
    last = done(await bench.turn(session))
    assert last.error is not None
    assert last.error.message == "test/model: unreachable; the fallback test/other: broke too"
    assert (last.error.kind, last.error.exit_code) == ("overloaded", 75)
    assert len(spare.requests) == (6 if second == "overloaded" else 1)
    assert [message.role for message in session.conversation.messages] == ["user"]
    await session.close()


async def test_a_fallback_that_cannot_be_opened_is_named(bench: Bench) -> None:
    def open_it() -> Model:
        raise UsageError("there is no key", "set one")

    session = bench.session(Scripted(list(busy())), fallback=Fallback("test/other", open_it))
    last = done(await bench.turn(session))
    assert last.error is not None
    assert last.error.message == "test/model: unreachable; the fallback test/other: there is no key"
    assert last.error.hint == "set one"
    await session.close()


async def test_the_model_itself_is_no_fallback(bench: Bench) -> None:
    session = bench.session(Scripted(list(busy())), fallback=fallback(Scripted([said("never")])))
    last = done(await bench.turn(session))
    assert last.error is not None
    assert last.error.message == "unreachable"
    await session.close()


async def test_a_fallback_gets_a_prompt_that_it_takes(bench: Bench) -> None:
    """A memory update inside the conversation is for models that know system messages there."""
    main = Scripted([said("1"), *busy(), said("3")])
    spare = other(said("2"), system_messages=False)
    session = bench.session(main, fallback=fallback(spare))
    await bench.turn(session)
    memory = bench.store.memory(bench.state)
    (memory.worktree / "system" / "human.md").write_text("---\ndescription: The person.\n---\nLikes tea.\n")
    memory.commit_drafts("note", Author("Ada", "ada@example.com"))
    events = await bench.turn(session, "two")
    assert [event.how for event in events if isinstance(event, PromptReady)] == ["update", "compiled"]
    assert "Likes tea." in spare.requests[0].system[0]
    assert all(message.role != "system" for message in spare.requests[0].messages)
    assert done(await bench.turn(session, "three")).text == "3"
    assert "Likes tea." in main.requests[-1].system[0]
    await session.close()


async def test_the_cost_is_that_of_the_model_that_answered(bench: Bench) -> None:
    session = bench.session(Scripted(list(busy())), fallback=fallback(other(said("here"))))
    last: TurnDone = done(await bench.turn(session))
    assert last.usage == Usage(10, 5)
    assert last.cost_usd == pytest.approx(15 / 1_000_000)
    await session.close()


# The policy ---------------------------------------------------------------------------------------


@given(
    asked=st.one_of(st.none(), st.floats(0, 60)),
    kind=st.sampled_from(["rate_limited", "overloaded", "network", "broken_stream"]),
)
def test_c12_waits_grow_obey_the_server_and_are_bounded(asked: float | None, kind: str) -> None:
    policy = RetryPolicy()
    error = ModelError("busy", kind, retry_after=asked)  # type: ignore[arg-type]
    waits = [policy.wait(error, attempt) for attempt in range(1, policy.attempts + 1)]
    assert all(wait >= (asked or 0.0) for wait in waits)
    assert sum(waits) <= 5 * 60 + 20
    with pytest.raises(ModelError) as caught:
        policy.wait(error, policy.attempts + 1)
    assert caught.value is error


@pytest.mark.parametrize(
    ("asked", "words"), [(61, "61 seconds"), (7200, "2 hours"), (86_400 * 9, "216 hours"), (1e20, "a month")]
)
def test_c12_an_absurd_wait_is_said_in_words(asked: float, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        RetryPolicy().wait(ModelError("busy", "rate_limited", retry_after=asked), 1)


def test_c15_silence_is_not_sat_out_six_times() -> None:
    silent = ModelError("silent", "broken_stream", silent=True)
    assert RetryPolicy().wait(silent, 2) > 0
    with pytest.raises(ModelError):
        RetryPolicy().wait(silent, 3)


# What the model is told of earlier turns ----------------------------------------------------------

INTERRUPTED = "The previous turn was interrupted before it came to its end."
CUT_OFF = "The previous turn was cut off: the program was stopped"


async def test_d06_an_interrupted_turn_is_told_once_and_again_when_that_leaves(bench: Bench) -> None:
    started = asyncio.Event()
    refused = said("no", stop="refusal")
    model = Scripted([said("one"), started, refused, said("two"), said("three"), said("four")])
    session = bench.session(model)
    await bench.turn(session, "first")
    turn = session.turn("second", bench.ask)
    async for event in turn.events():
        if isinstance(event, TextDelta):
            turn.cancel()
    await bench.turn(session, "dropped")
    for words in ("third", "fourth"):
        await bench.turn(session, words)
        assert [str(message).count(INTERRUPTED) for message in model.requests[-1].messages[:4]] == [
            0,
            0,
            0,
            1,
        ]
        assert str(model.requests[-1].messages).count(INTERRUPTED) == 1
    session.conversation.undo((4, 5), "")
    await bench.turn(session, "fifth")
    assert str(model.requests[-1].messages[-1]).count(INTERRUPTED) == 1
    await session.close()


async def test_d06_a_turn_that_a_crash_ended_is_told_once_also_when_that_input_is_dropped(
    bench: Bench,
) -> None:
    session = bench.session(Scripted([]))
    session.conversation.begin_turn(Message("user", (Text("first"),)))
    await session.close()
    model = Scripted([said("no", stop="refusal"), said("two"), said("three")])
    for words in ("dropped", "second", "third"):
        again = bench.session(model, session.conversation.id)
        await bench.turn(again, words)
        await again.close()
    assert [str(request.messages).count(CUT_OFF) for request in model.requests] == [1, 1, 1]


async def test_d06_a_last_answer_that_lacks_its_checkpoint_only_is_no_interruption(bench: Bench) -> None:
    session = bench.session(Scripted([said("one")]))
    await bench.turn(session, "first")
    await session.close()
    path = bench.paths.conversation(bench.state.key, session.conversation.id)
    lines = path.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    path.write_bytes(b"".join(lines[: kinds.index("step")]))
    model = Scripted([said("two")])
    again = bench.session(model, session.conversation.id)
    assert (again.conversation.interrupted, again.conversation.recovered) == (None, ())
    await bench.turn(again, "second")
    await again.close()
    assert CUT_OFF not in str(model.requests[0].messages)
