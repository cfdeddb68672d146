"""stream-json: its documentation is complete, every event survives the trip, and no line is lost."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.core.codec import load_event, to_line
from letta_code.core.events import Event, TurnError
from letta_code.core.messages import (
    Image,
    Message,
    PromptKey,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from letta_code.core.tooling import (
    ApprovalRequest,
    CommandDisplay,
    CommitDisplay,
    Decision,
    DiffDisplay,
    MemoryCommitted,
    PlainDisplay,
    TodoDisplay,
    TodoItem,
    ToolOutput,
)

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "stream-json.md").read_text("utf-8")
FAKE = [sys.executable, "-m", "tests.frontends.fake"]
KINDS = get_args(Event)
VALUES = (
    *(PromptKey, ApprovalRequest, Decision, ToolOutput, MemoryCommitted, Usage, TurnError, Message),
    *(Text, Thinking, Image, ToolCall, ToolResult),
    *(PlainDisplay, DiffDisplay, CommandDisplay, CommitDisplay, TodoDisplay, TodoItem),
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.none() | st.dictionaries(st.text(), JSON_VALUES, max_size=3)
st.register_type_strategy(ToolCall, st.builds(ToolCall, arguments=OBJECTS, opaque=OBJECTS))
st.register_type_strategy(Thinking, st.builds(Thinking, opaque=OBJECTS))


def _events(kind: type) -> st.SearchStrategy[Event]:
    numbers = {
        field.name: st.none() | NUMBERS if field.name == "cost_usd" else NUMBERS
        for field in dataclasses.fields(kind)
        if field.name in ("wait", "seconds", "cost_usd")
    }
    return st.builds(kind, **numbers)


def _type(kind: type) -> str:
    return str(next(f.default for f in dataclasses.fields(kind) if f.name == "type"))


def _section(kind: type) -> str:
    parts = re.split(r"^### (.*)$", DOCUMENT.split("## Values inside events")[0], flags=re.MULTILINE)
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        if f"`{_type(kind)}`" in heading:
            return body
    raise AssertionError(f"{_type(kind)} has no section")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_and_each_of_its_fields_is_documented(kind: type) -> None:
    section = _section(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.name != "type"]
    assert [name for name in names if f"`{name}`" not in section] == []


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_every_value_inside_an_event_has_its_fields_documented(value: type) -> None:
    names = [field.name for field in dataclasses.fields(value)]
    assert [name for name in names if f"`{name}`" not in DOCUMENT] == []


@given(event=st.one_of(*map(_events, KINDS)))
@settings(max_examples=150, deadline=None)
def test_every_event_survives_the_trip(event: Event) -> None:
    line = to_line(event)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert load_event(json.loads(line)) == event


def _lines(scene: str, folder: Path) -> tuple[list[dict[str, object]], int]:
    done = subprocess.run(
        [*FAKE, "stream", scene],
        capture_output=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        timeout=30,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def test_lines_come_in_order_and_are_documented(tmp_path: Path) -> None:
    lines, code = _lines("work", tmp_path)
    assert code == 0
    assert [line["type"] for line in (lines[0], lines[1], lines[-2], lines[-1])] == [
        "system",
        "turn_started",
        "turn_done",
        "result",
    ]
    first, rest = DOCUMENT.split("## Last line: `result`")
    assert [key for key in lines[0] if f"`{key}`" not in first] == []
    assert [key for key in lines[-1] if f"`{key}`" not in rest] == []
    usage = lines[-1]["usage"]
    assert isinstance(usage, dict)
    assert [key for key in usage if f"`{key}`" not in rest] == []
    for line in lines[1:-1]:
        load_event(line)


def test_f07_a_question_is_refused_with_the_rule_that_would_allow_it(tmp_path: Path) -> None:
    lines, code = _lines("ask", tmp_path)
    given_answer = next(line for line in lines if line["type"] == "approval_given")
    decision = given_answer["decision"]
    assert isinstance(decision, dict)
    assert decision["choice"] == "deny"
    assert "--allowed-tools 'Bash(git push:*)'" in decision["feedback"]
    assert code == 0


def _started(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*FAKE, "stream", "many"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )


def test_f04_a_slow_reader_gets_the_last_line(tmp_path: Path) -> None:
    with _started(tmp_path) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()  # from here on more is written than a pipe holds
        rest = writer.stdout.read().splitlines()
        assert writer.wait(30) == 0
    assert json.loads(first)["subtype"] == "init"
    assert len(rest) == 5000 + 4
    assert json.loads(rest[-1])["type"] == "result"


def test_a_reader_that_leaves_is_no_error_on_stderr(tmp_path: Path) -> None:
    with _started(tmp_path) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.readline()
        writer.stdout.close()
        assert writer.stderr.read() == b"closed conv-1\n"  # the session says so itself
        assert writer.wait(30) == 1
