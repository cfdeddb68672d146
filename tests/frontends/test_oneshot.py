"""One shot: what is on stdout and stderr, exit codes, signals, standard input, odd locales."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.errors import UsageError
from letta_code.frontends.output import plain_text
from letta_code.frontends.stdin import LIMIT, join_prompt

ROOT = Path(__file__).resolve().parents[2]
FAKE = [sys.executable, "-m", "tests.frontends.fake"]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*FAKE, *words], capture_output=True, cwd=folder, env={**ENVIRONMENT, **environment}, timeout=30
    )


@contextmanager
def hanging(*words: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run whose tool runs a child: its process, and the child's id."""
    with subprocess.Popen(words, stderr=subprocess.PIPE, cwd=folder, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        found = re.search(rb"child (\d+)", process.stderr.readline())
        assert found is not None
        yield process, int(found[1])


@pytest.mark.parametrize(
    ("scene", "code", "subtype"),
    [
        ("work", 0, "success"),
        ("fail", 75, "error_during_execution"),
        ("bug", 1, "error_during_execution"),
        ("max", 1, "error_max_turns"),
    ],
)
def test_f03_json_is_one_object_and_agrees_with_the_exit_code(
    tmp_path: Path, scene: str, code: int, subtype: str
) -> None:
    done = run(tmp_path, "json", scene)
    result = json.loads(done.stdout)
    assert (done.returncode, result["subtype"], result["is_error"]) == (code, subtype, code != 0)
    assert ("error" in result) == (code != 0)
    if code:
        assert result["error"]["message"].encode() in done.stderr


def test_text_puts_only_the_answer_on_stdout(tmp_path: Path) -> None:
    done = run(tmp_path, "text", "work")
    assert done.stdout.startswith(b"Found it.")
    assert b"Run: pytest -q" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "gbk"}, {"PYTHONIOENCODING": "ascii:strict"}]
)
def test_b08_any_locale_prints_utf8(tmp_path: Path, locale: dict[str, str]) -> None:
    done = run(tmp_path, "text", "echo", "ĳ 系统 🙂", **locale)
    assert done.returncode == 0
    assert "ĳ 系统 🙂" in done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_b05_a_signal_ends_the_turn_and_its_children(tmp_path: Path, number: int, code: int) -> None:
    with hanging(*FAKE, "text", "hang", folder=tmp_path) as (process, child):
        process.send_signal(number)
        assert process.wait(30) == code
    assert not psutil.pid_exists(child)


def test_b06_the_parents_death_ends_the_turn(tmp_path: Path) -> None:
    middle = (
        "import subprocess, sys, time;"
        "subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL);"
        "time.sleep(1000)"
    )
    with hanging(sys.executable, "-c", middle, *FAKE, "text", "hang", folder=tmp_path) as (parent, child):
        parent.kill()
        assert parent.stderr is not None
        rest = parent.stderr.read()  # ends when the run, which holds the pipe too, has ended
    assert b"interrupted" in rest
    assert not psutil.pid_exists(child)


def test_front_ends_without_a_chat_do_not_load_the_terminal_library(tmp_path: Path) -> None:
    code = (
        "import sys;"
        "from letta_code.frontends import oneshot, stdin, stream_json;"
        "print([m for m in ('prompt_toolkit', 'rich', 'anthropic', 'openai') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, cwd=tmp_path)
    assert done.stdout == b"[]\n"


# Standard input -----------------------------------------------------------------------------------


def joined(prompt: str | None, data: bytes) -> str:
    """What becomes of `data` on a pipe that is closed behind it."""
    said: list[str] = []
    reader, writer = os.pipe()
    try:
        os.write(writer, data)
        os.close(writer)
        return join_prompt(prompt, said.append, descriptor=reader)
    finally:
        os.close(reader)
        assert said == []


def test_f02_a_pipe_that_stays_silent_is_not_waited_for() -> None:
    said: list[str] = []
    reader, writer = os.pipe()
    assert join_prompt("hi", said.append, descriptor=reader, first=0.05) == "hi"
    assert len(said) == 1
    os.write(writer, b"some")
    assert "some" in join_prompt("hi", said.append, descriptor=reader, idle=0.05)
    assert len(said) == 2
    os.close(reader)
    os.close(writer)


def test_stdin_joins_the_prompt_or_is_it() -> None:
    assert joined("review", b"a diff\n") == "review\n\n<stdin>\na diff\n</stdin>"
    assert joined("review", b"") == "review"
    assert joined(None, b"all of it") == "all of it"


def test_b08_bytes_that_are_no_utf8_are_replaced() -> None:
    assert joined(None, b"\xff\xfe ok") == "\ufffd\ufffd ok"


@pytest.mark.parametrize("data", [b"", b" \n\t"])
def test_c08_blank_input_is_refused_here(data: bytes) -> None:
    with pytest.raises(UsageError):
        joined(None, data)


def test_the_null_device_is_not_read() -> None:
    with Path(os.devnull).open("rb") as null:
        assert join_prompt("hi", lambda text: None, descriptor=null.fileno()) == "hi"


def test_too_much_input_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"x" * (LIMIT + 1))
    with file.open("rb") as large, pytest.raises(UsageError, match="10 MB"):
        join_prompt("hi", lambda text: None, descriptor=large.fileno())


@given(st.text(st.characters(codec="utf-8")) | st.from_regex(r"(\x1b[\[\]P(].{0,5}|\x9b.|.)*"))
def test_nothing_in_a_text_steers_a_terminal(text: str) -> None:
    shown = plain_text(text)
    assert not any((char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f" for char in shown)
