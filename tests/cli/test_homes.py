"""Homes that are missing, read-only, full or damaged: letta starts or says one line, and loses nothing."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.harness import Done, Letta
from tests.model_server import ModelServer, call, turn

Damage = Callable[[Path], object]
_DROP_FROM_BOUNDING_SET = 24  # of prctl; what keeps root from being refused by a folder's mode
_DAC_CAPABILITIES = (1, 2)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([{"text": "Fine.", "repeat": True}]) as server:
        yield server


@pytest.fixture
def used(letta: Letta, server: ModelServer) -> Letta:
    """A home with one agent and a conversation of one turn."""
    letta.environment = {"VLLM_BASE_URL": server.url}
    assert letta("-p", "first").code == 0
    return letta


def cold(letta: Letta, *words: str, before: Callable[[], object]) -> Done:
    """A run of its own process, which does `before` first."""
    done = subprocess.run(
        letta.command(*words),
        cwd=letta.project,
        env=letta.variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=before,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def obey_modes() -> None:
    """Root is refused like anybody else; for others nothing changes."""
    for capability in _DAC_CAPABILITIES:
        ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)


def is_one_line(done: Done) -> bool:
    """It failed with one line and a hint, and no traceback."""
    lines = done.err.splitlines()
    return (
        done.code in (1, 2)
        and done.out == ""
        and sum(line.startswith("letta: ") for line in lines) == 1
        and lines[-1].startswith("       ")
        and "Traceback" not in done.err
        and "bug" not in done.err
    )


def replaced(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def made_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "empty": replaced(lambda _: b""),
    "NULs": replaced(lambda data: b"\0" * len(data)),
    "NULs in the middle": replaced(lambda data: data[: len(data) // 2] + b"\0" * 9 + data[len(data) // 2 :]),
    "not UTF-8": replaced(lambda data: data[: len(data) // 2] + b"\xff\xfe" + data[len(data) // 2 :]),
    "half": replaced(lambda data: data[: len(data) // 2]),
    "a folder": made_folder,
}

SOME = ("empty", "NULs in the middle", "a folder")
"""One of each kind, for tests that start letta many times."""


def only(root: Path, pattern: str) -> Path:
    (path,) = root.glob(pattern)
    return path


# Files that are damaged ---------------------------------------------------------------------------


@pytest.mark.parametrize("damage", SOME)
def test_f14_a_damaged_agent_is_named_replaced_by_no_other_and_repaired_from_its_memory(
    used: Letta, damage: str
) -> None:
    path = only(used.home, "data/agents/*/*/agent.json")
    before = json.loads(path.read_bytes())
    other = used("agents", "create", "--name", "other").out.strip()
    DAMAGES[damage](path)
    refused = used("-p", "hi")
    assert is_one_line(refused), refused.err
    assert f"letta agents repair {before['id']}" in refused.err
    repaired = used("agents", "repair", before["id"][:20])
    assert repaired.out == f"{before['id']}\n"
    state = json.loads(path.read_bytes())
    assert {**state, "created_at": ""} == {**before, "created_at": ""}
    assert path.with_name("agent.json.damaged").exists()
    assert used("-p", "-c", "hi").code == 0
    assert len(used("agents", "list", "--json").json) == 2
    assert other != before["id"]


def test_an_agent_without_state_prompt_or_memory_is_repaired_as_far_as_there_is_something(
    used: Letta,
) -> None:
    state = only(used.home, "data/agents/*/*/agent.json")
    agent = state.parent.name
    prompt = only(used.home, "data/agents/*/*/prompts/*.md")
    prompt.write_text("something else")
    refused = used("-p", "hi")
    assert is_one_line(refused), refused.err
    assert f"letta agents repair {agent}" in refused.err
    assert used("agents", "repair", agent).code == 0
    assert used("-p", "hi").code == 0
    shutil.rmtree(state.parent)
    assert used("agents", "repair", agent).code == 0
    assert used("-p", "-c", "hi").code == 0
    assert "nothing of letta is damaged" in used("agents", "repair", agent).err
    shutil.rmtree(only(used.home, "memfs/*/*"))
    assert is_one_line(used("agents", "repair", agent))
    assert is_one_line(used("agents", "repair", "agent-nobody"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_of_projects_is_set_aside_and_said(used: Letta, damage: str) -> None:
    path = used.home / "data" / "projects.json"
    DAMAGES[damage](path)
    done = used("-p", "-c", "hi")
    assert done.code == 0
    assert "going on with the latest" in done.err
    assert f"it is now {path.with_suffix('.damaged')}" in done.err
    assert used("-p", "-c", "hi").err == ""


@pytest.mark.parametrize("damage", ["empty", "NULs", "a folder"])
def test_a_damaged_cache_costs_nothing(used: Letta, damage: str) -> None:
    DAMAGES[damage](only(used.home, "cache/prompts/*.txt"))
    assert used("-p", "-c", "hi") == Done(0, "Fine.\n", "")
    shutil.rmtree(used.home / "cache")
    (used.home / "cache").write_text("a file in the way")
    assert used("-p", "-c", "hi") == Done(0, "Fine.\n", "")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_settings_are_never_ignored_silently(used: Letta, damage: str) -> None:
    path = used.home / "config" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"permissions": {"deny": ["Bash"]}}\n')
    DAMAGES[damage](path)
    done = used("-p", "hi")
    assert str(path) in done.err
    assert is_one_line(done) or (done.code == 0 and "defaults are used" in done.err), done.err


def test_settings_that_cannot_be_read_are_not_written_anew(used: Letta) -> None:
    path = used.home / "config" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"permissions": {"deny": ["Bash"]}}\n')
    path.chmod(0)
    refused = cold(used, "config", "set", "model", "vllm/other", before=obey_modes)
    assert is_one_line(refused), refused.err
    path.chmod(0o600)
    assert "deny" in path.read_text()


def test_d01_a_torn_transcript_is_repaired_and_said_and_no_other_is_continued_in_its_place(
    used: Letta,
) -> None:
    path = only(used.home, "data/conversations/*/*/conv-*.jsonl")
    assert used("-p", "-c", "second").code == 0
    DAMAGES["half"](path)
    done = used("-p", "-c", "third")
    assert done.code == 0
    assert "torn" in done.err
    assert "was interrupted after" in done.err
    assert used("-p", "--new", "elsewhere").code == 0
    (newest,) = set(path.parent.glob("conv-*.jsonl")) - {path}
    made_folder(newest)
    refused = used("-p", "-c", "fourth")
    assert is_one_line(refused), refused.err
    assert newest.stem in refused.err


# Homes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["missing", "read-only", "a file"])
def test_f14_a_home_that_cannot_be_used_is_one_line(
    letta: Letta, server: ModelServer, tmp_path: Path, home: str
) -> None:
    letta.environment = {"VLLM_BASE_URL": server.url, "LETTA_HOME": "", "TMPDIR": str(tmp_path / "t")}
    (tmp_path / "t").mkdir()
    place = tmp_path / "person"
    if home == "read-only":
        place.mkdir(mode=0o555)
    elif home == "a file":
        place.write_text("in the way")
    letta.environment["HOME"] = str(place)
    done = cold(letta, "-p", "hi", before=obey_modes) if home == "read-only" else letta("-p", "hi")
    if home == "read-only":
        assert is_one_line(done), done.err
        assert "LETTA_HOME" in done.err
    else:
        assert (done.code, done.out) == (0, "Fine.\n"), done.err
        assert done.err.count("warning: ") == 1
        assert str(tmp_path / "t") in done.err


def test_f14_a_home_that_became_read_only_is_one_line_and_can_be_read(used: Letta) -> None:
    everything = {path: path.stat().st_mode for path in (used.home, *used.home.rglob("*"))}
    for path in everything:
        path.chmod(0o555)
    try:
        refused = cold(used, "-p", "-c", "hi", before=obey_modes)
        listed = cold(used, "conversations", "list", before=obey_modes)
    finally:
        for path, mode in everything.items():
            path.chmod(mode)
    assert is_one_line(refused), refused.err
    assert (listed.code, listed.err) == (0, "")
    assert "first" in listed.out
    assert used("-p", "-c", "hi").code == 0


def test_a_disk_that_fills_in_the_middle_of_a_turn_costs_only_that_step(letta: Letta) -> None:
    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    loud = call("Bash", command="seq 1 4000 | tee out.txt")
    small = call("Bash", command="echo small")
    script = [
        turn("First.", small),
        turn("Then.", loud),
        turn("", loud),
        turn("", loud),
        turn("On."),
        turn("Go."),
    ]
    with ModelServer(script) as server:
        letta.environment = {"VLLM_BASE_URL": server.url}
        done = cold(letta, "-p", "--permission-mode", "bypassPermissions", "fill it", before=full)
        assert done.code == 1
        assert done.err.count("letta: ") == 1, done.err
        assert "cannot write" in done.err
        assert "free some space" in done.err
        transcript = only(letta.home, "data/conversations/*/*/conv-*.jsonl")
        kinds = [json.loads(line)["kind"] for line in transcript.read_bytes().split(b"\n")[:-1]]
        assert kinds.count("step") >= 1
        after = letta("-p", "-c", "go on")
        assert after.code == 0, after.err
        assert server.violations == []
        assert "outcome is unknown" in json.dumps(server.requests[-1].body)
        assert "small" in json.dumps(server.requests[-1].body)


# Together -----------------------------------------------------------------------------------------


def test_d06_first_starts_at_the_same_moment_make_one_agent_and_a_conversation_each(
    letta: Letta, server: ModelServer
) -> None:
    letta.environment = {"VLLM_BASE_URL": server.url}
    runs = [letta.start("-p", "--output-format", "json", f"hello {number}") for number in range(2)]
    ends = [run.communicate(timeout=100) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], ends
    results = [json.loads(out) for out, _ in ends]
    assert len({result["agent_id"] for result in results}) == 1
    assert len({result["conversation_id"] for result in results}) == 2
    assert len(letta("agents", "list", "--json").json) == 1
    assert len(letta("conversations", "list", "--json").json) == 2
    assert letta("-p", "-c", "and?") == Done(0, "Fine.\n", "")
    assert letta("memory", "check").code == 0


def test_d06_a_second_continue_is_refused_names_fork_and_the_copy_goes_on(letta: Letta) -> None:
    script = [
        turn("One."),
        turn("", call("Bash", command="echo step")),
        {"fault": {"stall": "forever"}},
        turn("Copied."),
    ]
    with ModelServer(script) as server:
        letta.environment = {"VLLM_BASE_URL": server.url}
        first = letta("-p", "--output-format", "json", "first").json["conversation_id"]
        running = letta.start("-p", "-c", "--permission-mode", "bypassPermissions", "second")
        try:
            server.wait_for_requests(3, 60)
            refused = letta("-p", "-c", "third")
            assert is_one_line(refused), refused.err
            assert "--fork" in refused.err
            copy = letta("-p", "-c", "--fork", "--output-format", "json", "third")
            assert copy.code == 0, copy.err
            assert f"a copy of {first}" in copy.err
            body = json.dumps(server.requests[-1].body)
            assert "made in the middle of a turn" in body
            assert "second" in body
        finally:
            running.kill()
            running.communicate()
        assert server.violations == []
    assert copy.json["conversation_id"] != first
    by_hand = letta("conversations", "fork", first)
    assert by_hand.code == 0
    listed = {item["id"]: item["forked_from"] for item in letta("conversations", "list", "--json").json}
    assert listed[by_hand.out.strip()] == first
    assert f"a copy of {first}" in letta("conversations", "show", by_hand.out.strip()).out
    assert letta("-p", "--fork", "x").code == 2


def test_d07_old_transcripts_and_memory_are_never_deleted(used: Letta) -> None:
    old = [path for path in used.home.rglob("*") if path.is_file() and "cache" not in path.parts]
    for path in old:
        os.utime(path, (0, 0))
    for words in (("-p", "--new", "hi"), ("-p", "hi"), ("doctor",), ("conversations", "list")):
        used(*words)
    gone = [path for path in old if not path.exists()]
    assert gone == []
    assert len(used("conversations", "list", "--json").json) == 3


@pytest.mark.parametrize("git", ["unreadable", "a file", "of a newer Git"])
def test_f16_an_odd_git_above_the_folder_stops_nothing(letta: Letta, server: ModelServer, git: str) -> None:
    letta.environment = {"VLLM_BASE_URL": server.url}
    inner = letta.project / "inner"
    inner.mkdir()
    place = letta.project / ".git"
    if git == "a file":
        shutil.rmtree(place)
        place.write_bytes(b"gitdir: /nonexistent\0\n")
    elif git == "of a newer Git":
        (place / "config").write_text("[core]\n\trepositoryformatversion = 99\n\tfsmonitor = false\n")
    else:
        place.chmod(0)
    try:
        words = ("--cwd", "inner", "-p", "hi")
        done = cold(letta, *words, before=obey_modes) if git == "unreadable" else letta(*words)
    finally:
        place.chmod(0o700)
    assert (done.code, done.out) == (0, "Fine.\n"), done.err
    assert "Traceback" not in done.err
