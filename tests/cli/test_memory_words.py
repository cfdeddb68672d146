"""What `letta memory` says to somebody who does not know it yet: help, wrong calls, empty results."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Here, Letta


@pytest.fixture
def memory(here: Here) -> Path:
    assert here("agents", "create", "--name", "letta", "--block", "human=Likes tea.").code == 0
    return Path(here("memory", "path").out.strip())


def test_a_wrong_call_points_at_the_help_of_that_command(here: Here) -> None:
    group = here("memory")
    assert group.code == 2
    assert group.err.startswith("Usage: letta memory ")

    wrong = here("memory", "log", "--reverse")
    assert wrong.code == 2
    assert wrong.err.splitlines()[1].strip() == "see letta memory log --help"


def test_the_summary_of_each_command_is_whole_on_80_columns(here: Here) -> None:
    listed = here("memory", "--help", env={"COLUMNS": "80"}).out.partition("Commands:\n")[2].splitlines()

    assert len(listed) > 15
    assert [line for line in listed if "..." in line or not line.endswith(".")] == []


def test_an_empty_result_says_so_beside_standard_output(here: Here, memory: Path) -> None:
    assert (here("memory", "diff").out, here("memory", "diff").err) == ("", "nothing is uncommitted\n")
    assert here("memory", "diff", "HEAD..HEAD").err == "no difference\n"
    assert "--history looks in its past" in here("memory", "search", "coffee").err


def test_a_folder_where_a_file_is_meant_is_named_as_one(here: Here, memory: Path) -> None:
    for words in (("show", "system"), ("blame", "system/"), ("show", "HEAD:system")):
        done = here("memory", *words)
        assert done.code == 1
        assert "is a folder of memory" in done.err
        assert "system/human.md" in done.err
    assert here("memory", "log", "system").code == 0


def test_a_line_of_the_log_fits_80_columns(here: Here, memory: Path) -> None:
    agent = here("agents", "list", "--json").json[0]["id"]
    shell = {"LETTA_AGENT_ID": agent, "LETTA_CONVERSATION_ID": "conv-12345678-9abc-4def-8123-456789abcdef"}
    (memory / "system" / "tea.md").write_text("---\ndescription: d\n---\nGreen.\n")
    assert here("memory", "commit", "-m", "Green tea", env=shell).code == 0

    for words in (("log", "-n", "1"), ("blame", "system/tea"), ("review",)):
        line = here("memory", *words).out.splitlines()[0]
        assert "conv-12345678)" in line
        assert len(line) <= 80
    assert here("memory", "log", "--json").json[0]["conversation"] == shell["LETTA_CONVERSATION_ID"]


def test_ctrl_c_while_modules_are_imported_prints_no_traceback(letta: Letta, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nos.getpid()\n"
    )
    variables = letta.variables({"PYTHONPATH": str(tmp_path)})
    done = subprocess.run(
        letta.command("memory", "log"), cwd=letta.project, env=variables, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
