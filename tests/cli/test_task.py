"""The main job end to end (shown 1): a task of a dozen turns in a real repository, in three dialects."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from letta_code.core.codec import load_event
from letta_code.core.events import TurnDone, TurnStarted
from tests.cli.harness import ROOT, Letta
from tests.model_server import ModelServer

SCRIPTS = ROOT / "tests" / "scripts"
ALLOW = ("--permission-mode", "acceptEdits", "--allowed-tools", "Bash(python3 -m unittest:*)")


@pytest.fixture
def calculator(letta: Letta) -> Letta:
    shutil.copytree(SCRIPTS / "calculator", letta.project, dirs_exist_ok=True)
    subprocess.run(["git", "add", "."], cwd=letta.project, check=True)
    return letta


def solved(letta: Letta) -> bool:
    tests = subprocess.run(
        [sys.executable, "-m", "unittest", "-q"], cwd=letta.project, capture_output=True, check=False
    )
    return tests.returncode == 0


@pytest.mark.parametrize(
    ("handle", "provider"),
    [("anthropic/claude-sonnet-5-5", "ANTHROPIC"), ("openai/gpt-5.5", "OPENAI"), ("vllm/scripted", "VLLM")],
)
def test_a_task_of_a_dozen_turns_is_done_and_remembered(
    calculator: Letta, handle: str, provider: str
) -> None:
    with ModelServer(SCRIPTS / "dozen_turns.yaml") as server:
        calculator.environment = {f"{provider}_BASE_URL": server.url, f"{provider}_API_KEY": "x"}
        done = calculator(
            "-p", "-m", handle, "--output-format", "stream-json", *ALLOW, "Fix the failing test"
        )
        assert done.code == 0, done.err
        server.assert_finished()
        assert len(server.requests) == 12
    lines = [json.loads(line) for line in done.out.splitlines()]
    init, result = lines[0], lines[-1]
    assert (init["type"], init["subtype"], init["model"]) == ("system", "init", handle)
    assert init["cwd"] == str(calculator.project.resolve())
    assert {"Read", "Edit", "Bash", "memory"} <= set(init["tools"])
    events = [load_event(line) for line in lines[1:-1]]
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnDone)
    assert (result["type"], result["subtype"], result["is_error"], result["num_turns"]) == (
        "result",
        "success",
        False,
        12,
    )
    assert result["agent_id"] == init["agent_id"]
    assert result["conversation_id"] == init["conversation_id"]
    assert result["usage"]["input_tokens"] > 0
    log = calculator("memory", "log", "--json").json
    assert result["memory_revision"] == log[0]["revision"]
    assert log[0]["paths"] == ["reference/calculator.md"]
    assert log[0]["trailers"]["Letta-Conversation"] == result["conversation_id"]
    assert solved(calculator)
    assert not (calculator.project / ".letta").exists()


def test_without_permission_nothing_is_changed_and_the_turn_still_ends(calculator: Letta) -> None:
    before = (calculator.project / "calculator.py").read_text()
    with ModelServer(SCRIPTS / "dozen_turns.yaml") as server:
        calculator.environment = {"VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x"}
        done = calculator("-p", "Fix the failing test")
    assert done.code == 0, done.err
    assert "Fixed" in done.out
    assert (calculator.project / "calculator.py").read_text() == before


def test_max_turns_end_the_run(calculator: Letta) -> None:
    with ModelServer(SCRIPTS / "dozen_turns.yaml") as server:
        calculator.environment = {"VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x"}
        done = calculator("-p", "--max-turns", "2", "--output-format", "json", "Fix the failing test")
        assert done.code == 1
        assert done.json["subtype"] == "error_max_turns"
        assert len(server.requests) == 2


def test_paths_and_files_of_the_prompt_flags(calculator: Letta, tmp_path: Path) -> None:
    prompt = tmp_path / "base.md"
    prompt.write_text("You are a test.\n\n{CORE_MEMORY}\n\nThe end.")
    with ModelServer([{"text": "Yes.", "repeat": True}]) as server:
        calculator.environment = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x"}
        words = (
            "-p",
            "--system-prompt",
            str(prompt),
            "--append-system-prompt",
            "Be brief.",
            "-C",
            "project",
            "hi",
        )
        done = calculator(*words, cwd=tmp_path, stdin="from a pipe")
        assert done.code == 0, done.err
        assert done.out == "Yes.\n"
        (request,) = server.requests
    system = request.body["system"][0]["text"]
    assert system.startswith("You are a test.\n")
    assert "Be brief." in system
    assert "from a pipe" in json.dumps(request.body["messages"])
    shown = calculator("context", "--turn", "1")
    assert shown.out == system
