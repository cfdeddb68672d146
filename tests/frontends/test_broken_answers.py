"""What the chat and a one-shot run say when an answer breaks off, is asked for again, or another model takes
over."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from letta_code.core.events import (
    AnswerBroken,
    Event,
    FallbackUsed,
    MessageDone,
    Retrying,
    StepStarted,
    TextDelta,
    TurnDone,
    TurnError,
)
from letta_code.core.messages import Message, Text, Usage
from letta_code.frontends.oneshot import progress_line
from letta_code.frontends.screen import Screen


def shown(*events: Event) -> str:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=200), Path("letta.log"))
    for event in events:
        screen.show(event, 1000)
    return out.getvalue()


def answer(text: str) -> MessageDone:
    return MessageDone("message-1", Message("assistant", (Text(text),), "agent"))


def test_c15_an_answer_that_is_said_again_is_marked_where_it_broke_off() -> None:
    text = shown(
        StepStarted(1),
        TextDelta("First part.\n\nSecond par"),
        AnswerBroken(1, "First part.\n\nSecond par", "closed \x1b[31mearly"),
        Retrying(1, 2.0, "closed early"),
        TextDelta("First part.\n\nSecond part."),
        answer("First part.\n\nSecond part."),
    )
    places = [
        text.index(words)
        for words in (
            "First part.",
            "Second par",
            "⋯ broken off here (closed",
            "retry 1 in 2 s",
            "Second part.",
        )
    ]
    assert places == sorted(places)
    assert text.count("does not count") == 1
    assert text.count("First part.") == 2
    assert "\x1b" not in text


def test_a_server_that_does_not_stream_the_second_time_is_shown_too() -> None:
    broken = AnswerBroken(1, "Hal", "closed early")
    text = shown(StepStarted(1), TextDelta("Hal"), broken, Retrying(1, 2.0, "closed"), answer("Whole."))
    assert "Whole." in text


def test_the_fallback_and_a_failed_turn_are_said() -> None:
    used = FallbackUsed("a/spare", "b/main", "b answered 529: Overloaded")
    assert "b/main stays out of reach (b answered 529: Overloaded); a/spare goes on" in shown(used)
    assert progress_line(used) == (
        "warning: b/main stays out of reach (b answered 529: Overloaded); a/spare goes on"
    )
    error = TurnError("broken_stream", "the answer broke off", "", True, 75)
    done = TurnDone("error", "", 0, Usage(), 1.0, 0.0, "", error, "Hal")
    text = shown(StepStarted(1), TextDelta("Hal"), AnswerBroken(1, "Hal", "closed early"), done)
    assert text.index("Hal") < text.index("broken off here") < text.index("the answer broke off")
    assert text.count("Hal") == 1
