"""What a second run knows of the first: conversations, memory and its prompt, failures and crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Letta
from tests.model_server import ModelServer, Request, call, request_prefix, turn

UPDATING = "anthropic/claude-opus-4-8"  # takes system messages inside a conversation


def asking(letta: Letta, server: ModelServer, provider: str = "VLLM") -> Letta:
    letta.environment = {f"{provider}_BASE_URL": server.url, f"{provider}_API_KEY": "x"}
    return letta


def system_of(request: Request) -> str:
    return str(request.body["system"][0]["text"])


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *words], cwd=folder, check=True
    )


def has_prefix(request: Request, before: Request) -> bool:
    assert request.dialect is not None
    old, new = (request_prefix(each.body, request.dialect) for each in (before, request))
    return bool(new[: len(old)] == old)


def test_c_goes_on_with_the_last_conversation_also_elsewhere(letta: Letta, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with ModelServer([{"text": "Fine.", "repeat": True}]) as server:
        asking(letta, server)
        first = letta("-p", "--output-format", "json", "my name is Ada").json
        assert letta("-p", "-c", "who am I?").code == 0
        assert has_prefix(server.requests[1], server.requests[0])
        third = letta("-p", "--conversation", first["conversation_id"], "and here?", cwd=other)
        assert third.code == 0, third.err
        assert "my name is Ada" in json.dumps(server.requests[2].body)
        assert "who am I?" in json.dumps(server.requests[2].body)
        fresh = letta("-p", "--output-format", "json", "nothing", cwd=other).json
        assert fresh["conversation_id"] != first["conversation_id"]
        assert "Ada" not in json.dumps(server.requests[3].body["messages"])
    listed = letta("conversations", "list", "--json").json
    assert {item["id"] for item in listed} == {first["conversation_id"], fresh["conversation_id"]}
    assert "my name is Ada" in letta("conversations", "show", first["conversation_id"]).out
    assert letta("conversations", "delete", fresh["conversation_id"], "--yes").code == 0
    assert len(letta("conversations", "list", "--json").json) == 1


def test_shown_2_only_committed_memory_is_in_the_prompt(letta: Letta) -> None:
    odd = "$& {CORE_MEMORY} </self>"
    with ModelServer([{"text": "Fine.", "repeat": True}]) as server:
        asking(letta, server, "ANTHROPIC")
        assert letta("-p", "one").code == 0
        memory = Path(letta("memory", "path").out.strip())
        persona = memory / "system" / "persona.md"
        persona.write_text(persona.read_text() + "\nI rhyme.\n")
        (memory / "system" / "偏好.md").write_text(f"---\ndescription: taste\n---\n{odd}\n")
        assert letta("-p", "-c", "two").code == 0
        assert has_prefix(server.requests[1], server.requests[0])
        git(memory, "add", "-A")
        git(memory, "commit", "-q", "-m", "rhyme")
        assert letta("-p", "--new", "three").code == 0
        assert letta("memory", "revert", "HEAD").code == 0
        assert letta("-p", "--new", "four").code == 0
        shown = letta("context", "--turn", "1").out
    one, _, three, four = map(system_of, server.requests)
    assert "I rhyme." not in one
    assert "I rhyme." in three
    assert odd in three
    assert three.index(odd) > three.index("</self>")  # nothing is open that it could close
    assert four == one
    assert shown == four


def test_shown_3_and_4_an_update_survives_a_failed_request_and_is_in_every_later_one(letta: Letta) -> None:
    failing = ModelServer([{"fault": {"status": 500, "times": 99}}])
    with ModelServer([{"text": "Fine.", "repeat": True}]) as server, failing:
        asking(letta, server, "ANTHROPIC")
        assert letta("-p", "-m", UPDATING, "one").code == 0
        memory = Path(letta("memory", "path").out.strip())
        human = memory / "system" / "human.md"
        human.write_text(human.read_text() + "\nShe is called Ada.\n")
        assert letta("memory", "commit", "-m", "her name").code == 0
        asking(letta, failing, "ANTHROPIC")
        failed = letta("-p", "-c", "--output-format", "json", "please fail")
        assert failed.code == 75, failed.err
        assert failed.json["is_error"] is True
        assert failed.json["error"]["retryable"] is True
        assert "500" in failed.err
        assert "She is called Ada." in json.dumps(failing.requests[0].body)
        asking(letta, server, "ANTHROPIC")
        assert letta("-p", "-c", "two").code == 0
        assert letta("-p", "-c", "three").code == 0
        described = letta("context", "--json").json
    first, second, third = server.requests
    assert server.violations == []
    assert system_of(first) == system_of(second) == system_of(third)
    assert "She is called Ada." not in system_of(second)
    assert "She is called Ada." in json.dumps(second.body["messages"])
    assert "She is called Ada." in json.dumps(third.body["messages"])
    assert has_prefix(second, first)
    assert has_prefix(third, second)
    assert "She is called Ada." in described["updates"][0]
    assert described["prompt"] == system_of(third)


@pytest.mark.parametrize(
    ("handle", "provider"), [("anthropic/claude-sonnet-5-5", "ANTHROPIC"), ("openai/gpt-5.5", "OPENAI")]
)
def test_shown_5_after_kill_9_in_a_tool_the_outcome_is_unknown(
    letta: Letta, handle: str, provider: str
) -> None:
    mark, started = letta.project / "mark", letta.project / "started"
    os.mkfifo(started)
    script = [
        turn("I run it.", call("Bash", command=f"echo x >> {mark}; echo go > {started}; sleep 60")),
        turn("I look first."),
        turn("Again."),
    ]
    with ModelServer(script) as server:
        asking(letta, server, provider)
        process = letta.start("-p", "-m", handle, "--permission-mode", "bypassPermissions", "deploy")
        try:
            assert started.read_text() == "go\n"  # waits for the tool
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert letta("-p", "-c", "and?").code == 0
        assert letta("-p", "-c", "more").code == 0
        assert server.violations == []
        assert "unknown" in json.dumps(server.requests[1].body)
        assert has_prefix(server.requests[2], server.requests[1])
    assert mark.read_text() == "x\n"


def test_f03_a_permanent_failure_is_1_a_temporary_one_75_and_both_are_said(letta: Letta) -> None:
    with ModelServer([{"fault": {"status": 401, "times": 9}}]) as server:
        done = asking(letta, server)("-p", "hi")
        assert (done.code, done.out) == (1, "")
        assert "401" in done.err
        gone = server.url
    closed = letta("-p", "-m", "vllm/x", "--base-url", gone, "hi")
    assert closed.code == 75
    assert closed.out == ""


def test_c24_a_local_server_needs_no_cloud_key(letta: Letta) -> None:
    with ModelServer([{"text": "Here.", "repeat": True}]) as server:
        assert letta("-p", "-m", "ollama/scripted", "hi", env={"OLLAMA_HOST": server.url}).out == "Here.\n"
        assert letta("-p", "--base-url", server.url, "hi").out == "Here.\n"


def test_f02_a_pipe_that_never_ends_is_not_waited_for(letta: Letta) -> None:
    with ModelServer([{"text": "Here.", "repeat": True}]) as server:
        asking(letta, server)
        read, write = os.pipe()
        try:
            done = subprocess.run(
                letta.command("-p", "hi"),
                cwd=letta.project,
                env=letta.variables(),
                stdin=read,
                capture_output=True,
                timeout=50,
                check=False,
            )
        finally:
            os.close(read)
            os.close(write)
    assert (done.returncode, done.stdout) == (0, b"Here.\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_turn_in_order(letta: Letta, number: signal.Signals, code: int) -> None:
    with ModelServer([{"fault": {"stall": "forever"}}, {"text": "Later."}]) as server:
        asking(letta, server)
        process = subprocess.Popen(  # cold, as a shell starts it
            letta.command("-p", "--output-format", "json", "hi"),
            cwd=letta.project,
            env=letta.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            server.wait_for_requests(1, 40)
            process.send_signal(number)
            out, err = process.communicate(timeout=40)
        finally:
            process.kill()
        assert process.returncode == code, err
        assert json.loads(out)["subtype"] == "error_interrupted"


def test_e12_f14_a_git_hook_and_a_read_only_project_are_left_alone(letta: Letta) -> None:
    script = [
        turn(
            "",
            call(
                "memory", command="create", reason="r", file_path="notes/a.md", description="d", file_text="x"
            ),
        ),
        turn("Noted."),
    ]
    before = sorted(str(path) for path in letta.project.rglob("*"))
    with ModelServer(script) as server:
        asking(letta, server)
        env = {
            "GIT_DIR": str(letta.project / ".git"),
            "GIT_INDEX_FILE": str(letta.project / ".git" / "index"),
            "GIT_WORK_TREE": str(letta.project),
        }
        done = letta("-p", "remember x", env=env)
        assert done.code == 0, done.err
    assert sorted(str(path) for path in letta.project.rglob("*")) == before
    assert letta("memory", "log", "--json").json[0]["paths"] == ["notes/a.md"]


def test_new_agent_and_agent_choose_whose_memory_answers(letta: Letta, tmp_path: Path) -> None:
    with ModelServer([{"text": "Fine.", "repeat": True}]) as server:
        asking(letta, server)
        first = letta("-p", "--output-format", "json", "hi")
        assert "memory is in" in first.err
        second = letta("-p", "--new-agent", "--output-format", "json", "hi").json
        assert second["agent_id"] != first.json["agent_id"]
        assert letta("-p", "--output-format", "json", "hi").json["agent_id"] == second["agent_id"]
        named = letta("-p", "--agent", "letta", "--output-format", "json", "hi").json
        assert named["agent_id"] == first.json["agent_id"]
        both = letta("-p", "--agent", "letta", "--new-agent", "hi")
        assert both.code == 2
