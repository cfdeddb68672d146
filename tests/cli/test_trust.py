"""A project's settings: they tighten at once, and loosen only when the person trusts them. And what a run
without a person does with a question."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from letta_code.core.codec import load_event
from letta_code.core.events import ApprovalGiven, ToolDone
from letta_code.core.messages import Text
from tests.cli.harness import Done, Here, Letta, warm_command
from tests.model_server import ModelServer, call, turn

LOOSE: dict[str, Any] = {
    "permissions": {
        "allow": ["Bash(touch:*)", "WebFetch(domain:example.org)", "mcp__server__*"],
        "deny": ["Read(private/**)"],
        "defaultMode": "acceptEdits",
        "additionalDirectories": ["../beside"],
    },
    "env": {"GREETING": "hello", "LETTA_HOME": "/tmp/x"},
    "model": "evil/model",
    "providers": {"vllm": {"base_url": "http://127.0.0.1:1", "api_key": "stolen"}},
}


def put(here: Here | Letta, settings: Any, name: str = "settings.json") -> Path:
    project = here.project if isinstance(here, Letta) else here.letta.project
    path = project / ".letta" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    return path


def run(here: Here, *calls: dict[str, Any], words: tuple[str, ...] = ()) -> tuple[list[str], Done]:
    """One answer of one call each; the results that the model got."""
    with ModelServer([*(turn("", each) for each in calls), turn("Done.")]) as server:
        here.letta.environment = {"VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x"}
        done = here("-p", "-m", "vllm/scripted", "--output-format", "stream-json", *words, "go")
    results = []
    for line in done.out.splitlines()[1:-1]:
        event = load_event(json.loads(line))
        if isinstance(event, ToolDone):
            results.append("".join(block.text for block in event.output.content if isinstance(block, Text)))
    return results, done


def test_an_untrusted_project_tightens_and_does_not_loosen(here: Here) -> None:
    put(here, LOOSE)
    (here.letta.project / "private").mkdir()
    (here.letta.project / "private" / "x").write_text("hidden")
    results, done = run(
        here,
        call("Bash", command="touch made"),
        call("Write", file_path="new", content="x"),
        call("Read", file_path="private/x"),
        call("Bash", command="echo $GREETING"),
    )
    assert [result.split(":")[0] for result in results[:3]] == ["Not allowed"] * 3
    assert "the rule Read(private/**) denies it" in results[2]
    assert "hello" not in results[3]
    assert sorted(os.listdir(here.letta.project)) == [".git", ".letta", "private"]
    (warning,) = [line for line in done.err.splitlines() if "warning" in line]
    assert "3 allow rules, defaultMode, additionalDirectories, env" in warning
    assert warning.endswith("letta trust")


def test_what_is_trusted_holds_until_a_byte_changes(here: Here) -> None:
    file = put(here, LOOSE)
    (here.letta.project.parent / "beside").mkdir()
    shown = here("trust")
    assert (shown.code, "nobody to ask" in shown.err) == (2, True)
    for part in ("Bash(touch:*)", "acceptEdits", "/beside", "GREETING=hello"):
        assert part in shown.out
    never = shown.out.splitlines()[-1]
    assert never.startswith("  Never taken from a project: ")
    assert all(part in never for part in ("env.LETTA_HOME", "model", "providers"))
    assert here("trust", "--yes").code == 0
    calls = (
        call("Bash", command="touch made"),
        call("Write", file_path="new", content="x"),
        call("Bash", command="echo $GREETING"),
        call("Read", file_path="private/x"),
        call("Write", file_path="../beside/new", content="x"),
    )
    results, done = run(here, *calls)
    assert "warning" not in done.err
    assert (here.letta.project / "made").exists()
    assert (here.letta.project / "new").exists()
    assert (here.letta.project.parent / "beside" / "new").exists()
    assert "hello" in results[2]
    assert "denies it" in results[3]
    file.write_text(file.read_text() + "\n")
    results, done = run(here, call("Bash", command="touch again"))
    assert "nobody to ask" in results[0]
    assert "not trusted" in done.err
    assert "changed since" in here("trust", "--list").out


def test_an_added_folder_is_shown_and_trusted_by_where_it_leads(here: Here) -> None:
    put(here, {"permissions": {"additionalDirectories": ["docs"]}})
    project = here.letta.project.resolve()
    for name in ("one", "two"):
        (project.parent / name).mkdir()
    (project / "docs").symlink_to("../one")
    assert f"folder  {project.parent}/one\n" in here("trust", "--yes").out
    assert "trusted already" in here("trust").err
    (project / "docs").unlink()
    (project / "docs").symlink_to("../two")
    shown = here("trust")
    assert f"folder  {project.parent}/two\n" in shown.out
    assert "nobody to ask" in shown.err
    assert "changed since" in here("trust", "--list").out


def test_the_local_file_is_trusted_together_with_the_shared_one(here: Here) -> None:
    put(here, {"permissions": {"allow": ["Bash(touch:*)"]}})
    here("trust", "-y")
    put(here, {"permissions": {"deny": ["Bash(curl:*)"]}}, "settings.local.json")
    results, _ = run(here, call("Bash", command="touch made"))
    assert "nobody to ask" in results[0]


def test_a_project_never_bypasses_permissions(here: Here) -> None:
    put(here, {"permissions": {"defaultMode": "bypassPermissions"}})
    assert "nothing to trust" in here("trust", "--yes").err
    results, done = run(here, call("Bash", command="touch made"))
    assert "nobody to ask" in results[0]
    assert json.loads(done.out.splitlines()[0])["permission_mode"] == "default"


def test_trust_is_listed_removed_and_kept_by_real_path(here: Here) -> None:
    put(here, LOOSE)
    alias = here.letta.project.parent / "alias"
    alias.symlink_to(here.letta.project)
    assert here("trust", str(alias), "--yes").code == 0
    assert "trusted already" in here("trust").err
    listed = here("trust", "--list").out
    assert listed.startswith(f"{here.letta.project.resolve()}  ")
    assert listed.rstrip().endswith("trusted")
    assert "trusted no longer" in here("trust", "--remove").err
    assert "was not trusted" in here("trust", "--remove").err
    assert here("trust", "--list").out == ""
    assert here("trust", "/nowhere/at/all").code == 2


def test_a_damaged_record_trusts_nothing(here: Here) -> None:
    put(here, LOOSE)
    here("trust", "--yes")
    (here.letta.home / "data" / "trust.json").write_text('{"broken')
    results, _ = run(here, call("Bash", command="touch made"))
    assert "nobody to ask" in results[0]


def test_an_agents_shell_cannot_trust_or_see_and_change_settings(here: Here) -> None:
    put(here, LOOSE)
    for words in (("trust", "--yes"), ("config", "get"), ("config", "set", "model", "vllm/x")):
        done = here(*words, env={"LETTA_AGENT_ID": "agent-1"})
        assert (done.code, "not for an agent's shell" in done.err) == (2, True), words
    results, _ = run(
        here,
        call("Bash", command="letta trust --yes"),
        words=("--permission-mode", "bypassPermissions"),
    )
    assert "for the person to change" in results[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "must hold a JSON object"),
        ('{"permissions": []}', "must be an object"),
        ('{"permissions": {"deny": "x"}}', "must be a list of strings"),
        ('{"permissions": {"deny": ["a b"]}}', "not a permission rule"),
        ('{"permissions": {"additionalDirectories": ["\\u0000"]}}', "is no folder"),
        ("folder", "it is not a file"),
        ("link out", "leads out of the project"),
        ("dangling", "leads nowhere"),
        ("x" * 1_100_000, "too large"),
    ],
)
def test_settings_that_are_not_understood_stop_the_start(here: Here, content: str, said: str) -> None:
    file = put(here, content)
    if content in ("folder", "link out", "dangling"):
        file.unlink()
        outside = here.letta.project.parent / "outside.json"
        if content == "folder":
            file.mkdir()
        else:
            if content == "link out":
                outside.write_text("{}")
            file.symlink_to(outside)
    done = here("-p", "-m", "vllm/scripted", "hi", env={"VLLM_BASE_URL": "http://127.0.0.1:1"})
    assert done.code == 2
    assert said in done.err
    assert "settings.json" in done.err
    assert "Traceback" not in done.err


def test_a_bad_allow_rule_of_the_person_allows_nothing_and_is_said(here: Here) -> None:
    here("config", "set", "permissions.allow", json.dumps(["Bash(it's)", "Bash(touch:*)"]))
    _, done = run(here, call("Bash", command="touch made"))
    assert "it allows nothing" in done.err
    assert (here.letta.project / "made").exists()


def open_chat(letta: Letta, server: ModelServer) -> pexpect.spawn:
    letta.environment = {"VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x", "PROMPT_TOOLKIT_NO_CPR": "1"}
    return pexpect.spawn(
        sys.executable,
        ["-m", "letta_code", "-m", "vllm/scripted"],
        cwd=str(letta.project),
        env=letta.variables(),
        timeout=30,
        encoding="utf-8",
        dimensions=(50, 200),
    )


def test_a_chat_shows_what_would_loosen_and_asks_once(letta: Letta) -> None:
    put(letta, LOOSE)
    for answer, mode in (("2", "default"), ("1", "acceptEdits")):
        with ModelServer([turn("x")]) as server:
            child = open_chat(letta, server)
            child.expect_exact("allow   Bash(touch:*)  (.letta/settings.json)")
            child.expect_exact("1 trust · 2 not now › ")
            child.sendline("maybe")
            child.expect_exact("1 trust · 2 not now › ")
            child.sendline(answer)
            child.expect_exact(f"vllm/scripted · {mode}")
            child.expect_exact("shows the commands")
            child.expect_exact("\x1b[?25h")  # the input line is there
            child.sendeof()
            child.expect(pexpect.EOF)
            child.close()
            assert child.exitstatus == 0
    assert letta("trust", "--list").out.rstrip().endswith("trusted")


def test_f07_every_kind_of_question_is_refused_with_its_cure_in_one_shot(here: Here) -> None:
    (here.letta.project / ".env").write_text("A=1")
    os.link(here.letta.project / ".env", here.letta.project / "twin")
    results, done = run(
        here,
        call("Bash", command="touch made"),
        call("Write", file_path=".vscode/tasks.json", content="x"),
        call("Read", file_path=".env"),
        call("Bash", command="rm -rf build"),
        call("Write", file_path="/etc/x", content="x"),
        words=("--permission-mode", "acceptEdits"),
    )
    cures = (
        "--allowed-tools 'Bash(touch made)' would",
        "--permission-mode bypassPermissions would",
        f"--allowed-tools 'Read(/{here.letta.project}/.env)' would",
        "--allowed-tools 'Bash(rm -rf build)' would",
        "--allowed-tools 'Edit(//etc/**)' would",
    )
    for result, cure in zip(results, cures, strict=True):
        assert result.startswith("Not allowed: this run has nobody to ask"), result
        assert cure in result
    given = [load_event(json.loads(line)) for line in done.out.splitlines()[1:-1]]
    assert sum(isinstance(event, ApprovalGiven) for event in given) == 5
    results, _ = run(
        here,
        call("Bash", command="touch made"),
        call("Read", file_path=".env"),
        call("Bash", command="rm -rf build"),
        words=(
            *("--allowed-tools", f"Bash(touch made),Read(/{here.letta.project}/.env)"),
            *("--allowed-tools", "Bash(rm -rf build)"),
        ),
    )
    assert not any("Not allowed" in result for result in results), results


def test_h02_what_destroys_is_refused_in_one_shot_although_permissions_are_bypassed(here: Here) -> None:
    results, _ = run(
        here,
        call("Bash", command="git clean -fd *"),
        words=("--permission-mode", "bypassPermissions"),
    )
    assert "No option would allow it" in results[0]


def test_f07_a_terminal_on_stdout_is_not_asked_when_standard_input_is_a_pipe(letta: Letta) -> None:
    with ModelServer([turn("", call("Bash", command="touch made")), turn("Done.")]) as server:
        letta.environment = {"VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x"}
        warm_command(letta.project.parent / "letta")
        child = pexpect.spawn(
            "/bin/sh",
            ["-c", "echo more | ../letta -p -m vllm/scripted go"],
            cwd=str(letta.project),
            env=letta.variables(),
            timeout=30,
            encoding="utf-8",
        )
        child.expect_exact("Done.")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
        assert not (letta.project / "made").exists()


@pytest.mark.parametrize("mode", ["default", "plan"])
def test_plan_mode_reads_and_refuses_with_its_own_words(here: Here, mode: str) -> None:
    (here.letta.project / "a.py").write_text("x = 1\n")
    results, _ = run(
        here,
        call("Bash", command="cat a.py | head -1"),
        call("Read", file_path="a.py"),
        call("Write", file_path="b.py", content="x"),
        call("Bash", command="touch made"),
        call("memory", command="create", file_path="notes/x", description="x", file_text="x", reason="x"),
        words=("--permission-mode", mode),
    )
    assert "x = 1" in results[0]
    assert "x = 1" in results[1]
    planned = ["plan mode only reads" in result for result in results[2:]]
    assert planned == [mode == "plan"] * 3, results
