"""The shipped task of a dozen turns, and the command that serves it to people."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.model_server import Dialect, ModelServer, call, load_script, turn
from tests.model_server.clients import DIALECTS, client

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "tests" / "scripts"


def run_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "unittest", "-q"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_dozen_turns_repair_the_calculator(tmp_path: Path) -> None:
    folder = tmp_path / "calculator"
    shutil.copytree(SCRIPTS / "calculator", folder)
    outcomes = []
    turns = load_script(SCRIPTS / "dozen_turns.yaml")
    assert len([item for item in turns if not item.get("optional")]) == 12
    for item in (made for each in turns for made in each.get("tool_calls", ())):
        arguments = item["arguments"]
        match item["name"]:
            case "Edit":
                file = folder / arguments["file_path"]
                before = file.read_text("utf-8")
                assert before.count(arguments["old_string"]) == 1
                file.write_text(before.replace(arguments["old_string"], arguments["new_string"]), "utf-8")
            case "Bash":
                assert arguments["command"] == "python3 -m unittest -q"
                outcomes.append(run_tests(folder).returncode)
            case "Read":
                assert (folder / arguments["file_path"]).is_file()
            case "Grep":
                assert arguments["pattern"] in (folder / "calculator.py").read_text("utf-8")
            case _:
                assert item["name"] in ("LS", "Glob", "TodoWrite", "memory")
    assert outcomes == [1, 0, 0]
    assert "Ran 3 tests" in run_tests(folder).stderr


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_command_serves_a_script_and_logs_it(dialect: Dialect, tmp_path: Path) -> None:
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text(json.dumps({"turns": [turn("", call("LS", path=".")), turn("Done.")]}), "utf-8")
    command = [
        sys.executable,
        str(ROOT / "scripts" / "model_server.py"),
        "--loop",
        "--log",
        str(log),
        str(script),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed = "".join(process.stdout.readline() for _ in range(5))
            url = printed.split()[0]
            served: Any = Served(url)
            with client(served, dialect) as ask:
                answers = [ask() for _ in range(3)]
        finally:
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=20)
    assert process.returncode == 0
    assert [len(answer.calls) for answer in answers] == [1, 0, 1]
    assert [len(json.loads(line)["body"]["model"]) > 0 for line in log.read_text("utf-8").splitlines()] == [
        True
    ] * 3
    assert f"ANTHROPIC_BASE_URL={url} " in printed
    assert f"OPENAI_BASE_URL={url}/v1 " in printed
    assert f"--base-url {url}/v1" in printed
    assert told.count("POST /v1/") == 3


class Served:
    """Where a server in another process listens."""

    def __init__(self, url: str) -> None:
        self.url = url


def test_the_command_refuses_a_bad_script_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- txt: typo\n", "utf-8")
    command = [sys.executable, str(ROOT / "scripts" / "model_server.py"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{script}: turn 0 of the script: unknown keys: txt\n"


def test_the_command_is_executable() -> None:
    assert os.access(ROOT / "scripts" / "model_server.py", os.X_OK)


def test_a_script_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("- text: from a file\n", "utf-8")
    with ModelServer(path) as server, client(server, "openai-chat") as ask:
        assert ask().text == "from a file"
    path.write_text("text: no list\n", "utf-8")
    with pytest.raises(ValueError, match="a script is a list of turns"):
        ModelServer(str(path))
