"""How a run ends from outside: signals, readers that stall or leave, terminals and parents that are gone."""

from __future__ import annotations

import array
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.frontends.terminal import FAKE, ROOT, Terminal

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PATH": "/usr/bin:/bin",
    "TERM": "xterm-256color",
    "LC_ALL": "C.UTF-8",
    "PROMPT_TOOLKIT_NO_CPR": "1",
}
SIGNALS = [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
WAIT = 30.0  # seconds; only a deadline


def start(
    folder: Path, *words: str, stdin: int = subprocess.DEVNULL, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*FAKE, *words], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, cwd=folder, env=ENVIRONMENT
    )


def child_of(process: subprocess.Popen[bytes]) -> int:
    """The child that a hanging run tells of on stderr."""
    assert process.stderr is not None
    found = re.search(rb"child (\d+)", process.stderr.readline())
    assert found is not None
    return int(found[1])


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def said(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stderr is not None
    return process.stderr.read()


# One shot and streams -----------------------------------------------------------------------------


def stalled(folder: Path) -> subprocess.Popen[bytes]:
    """A run whose reader does not read: its pipe is full."""
    process = start(folder, "stream", "many", stdout=subprocess.PIPE)
    assert process.stdout is not None
    room = fcntl.fcntl(process.stdout.fileno(), fcntl.F_GETPIPE_SZ)
    size = array.array("i", [0])
    while size[0] < room * 7 // 8:  # its last page may hold less
        os.sched_yield()
        fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, size)
    return process


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_b05_a_reader_that_stalls_does_not_hold_a_signal_up(tmp_path: Path, number: int, code: int) -> None:
    with stalled(tmp_path) as process:
        process.send_signal(number)
        assert process.wait(WAIT) == code
        assert said(process).endswith(b"closed conv-1\n")


def test_f04_a_reader_that_leaves_ends_the_run_quietly(tmp_path: Path) -> None:
    with stalled(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(WAIT) == 1
        assert said(process) == b"closed conv-1\n"


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_b05_what_does_not_end_is_left_with_its_child_ended(tmp_path: Path, number: int, code: int) -> None:
    with start(tmp_path, "text", "stubborn") as process:
        child = child_of(process)
        process.send_signal(number)
        assert process.wait(WAIT) == code
    assert not alive(child)


def test_b05_an_event_loop_that_is_stuck_does_not_hold_a_signal_up(tmp_path: Path) -> None:
    with start(tmp_path, "text", "stuck") as process:
        child = child_of(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 143
    assert not alive(child)


def test_b05_the_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    with start(tmp_path, "text", "stuck") as process:
        child = child_of(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 130
    assert not alive(child)


def test_a_session_that_does_not_close_is_left(tmp_path: Path) -> None:
    with start(tmp_path, "text", "unclosing", stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=WAIT)
        assert out == b"you said 'hi'\n"
        assert process.returncode == 0


def test_a_hang_up_that_was_ignored_at_the_start_stays_ignored(tmp_path: Path) -> None:
    command = ["nohup", *FAKE, "text", "hang"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path, env=ENVIRONMENT) as process:
        child = child_of(process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 143
    assert not alive(child)


# The chat -----------------------------------------------------------------------------------------


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def begin(command: Sequence[str], more: Mapping[str, str] | None = None) -> Terminal:
        opened.append(Terminal(tmp_path, command, more))
        return opened[-1]

    yield begin
    for one in opened:
        one.process.close(force=True)


@pytest.fixture
def chat(terminal: Callable[..., Terminal]) -> Callable[..., Terminal]:
    def begin(*words: str) -> Terminal:
        return terminal([*FAKE, "chat", *words])

    return begin


@pytest.mark.parametrize(
    ("words", "shown"), [(("echo",), "›"), (("ask", "go"), "3 no"), (("hang", "go"), "child")]
)
@pytest.mark.parametrize(("number", "code"), SIGNALS[:2])
def test_b05_a_signal_ends_the_chat_wherever_it_is_and_gives_the_terminal_back(
    chat: Callable[..., Terminal], words: tuple[str, ...], shown: str, number: int, code: int
) -> None:
    terminal = chat(*words)
    before = termios.tcgetattr(terminal.process.child_fd)
    terminal.until(shown)
    terminal.process.kill(number)
    assert terminal.left() == code
    assert "closed conv-1" in terminal.text
    assert termios.tcgetattr(terminal.process.child_fd)[:4] == before[:4]


def test_the_first_ctrl_c_in_a_turn_cancels_it_and_the_second_leaves(chat: Callable[..., Terminal]) -> None:
    terminal = chat("waiting", "go")  # it ends when its child has ended
    child = int(terminal.until("child ").split("child ")[1].split()[0])
    terminal.type("\x03")
    terminal.until("cancelled")
    assert alive(child)
    terminal.type("\x03")
    assert terminal.left() == 130
    assert "closed conv-1" in terminal.text
    assert not alive(child)


def test_the_third_ctrl_c_leaves_at_once(chat: Callable[..., Terminal]) -> None:
    terminal = chat("stubborn", "go")
    terminal.until("child ")
    terminal.type("\x03")
    terminal.until("cancelled")
    terminal.type("\x03")
    terminal.until(lambda text: text.count("cancelled") == 2)
    terminal.type("\x03")
    assert terminal.left() == 130


@pytest.mark.parametrize("answers", ["\x03", "3\r|\x03"])
def test_ctrl_c_in_a_question_interrupts_the_turn(chat: Callable[..., Terminal], answers: str) -> None:
    terminal = chat("ask", "go")
    for prompt, answer in zip(("3 no ›", "no reason) ›"), answers.split("|"), strict=False):
        terminal.until(prompt)
        terminal.type(answer)
    assert "decided" not in terminal.until("interrupted")
    terminal.until(lambda text: text.endswith("\n›") or "\n›\n" in text)


def closed_terminal(folder: Path, *words: str, controlling: bool, marker: bytes) -> tuple[int, bytes]:
    """The exit code and stderr of a chat whose terminal is closed once it shows `marker`."""
    ours, theirs = pty.openpty()
    command = [*FAKE, "chat", *words]
    if controlling:  # setsid makes it so: the kernel then sends SIGHUP too
        command = ["setsid", "--ctty", "--wait", *command]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, cwd=folder, env=ENVIRONMENT
    )
    os.close(theirs)
    shown = b""
    while marker not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)
    with process:
        return process.wait(WAIT), said(process)


@pytest.mark.parametrize(
    ("words", "marker"), [(("echo",), "›".encode()), (("ask", "go"), b"3 no"), (("hang", "go"), b"child")]
)
@pytest.mark.parametrize("controlling", [True, False])
def test_b06_a_closed_terminal_ends_the_chat_quietly(
    tmp_path: Path, words: tuple[str, ...], marker: bytes, controlling: bool
) -> None:
    code, errors = closed_terminal(tmp_path, *words, controlling=controlling, marker=marker)
    assert (code, errors) == (129, b"closed conv-1\n")


@pytest.mark.parametrize(("number", "code"), SIGNALS[:2])
def test_b05_a_terminal_that_stalls_does_not_hold_a_signal_up(tmp_path: Path, number: int, code: int) -> None:
    ours, theirs = pty.openpty()
    process = start(tmp_path, "chat", "many", "go", stdin=theirs, stdout=theirs)
    try:
        shown = b""
        while b"line 1 " not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(number)
        assert process.wait(WAIT) == code
    finally:
        os.close(theirs)
        os.close(ours)
    with process:
        assert said(process) == b"closed conv-1\n"


def test_ctrl_z_and_fg_in_a_turn(terminal: Callable[..., Terminal]) -> None:
    shell = terminal(["bash", "--norc", "-i"], {"PS1": "shell$ "})
    shell.until("shell$")
    shell.type(" ".join([*FAKE, "chat", "echo", "hang"]) + "\r")
    shell.until("child ")
    shell.type("\x1a")
    shell.until("Stopped")
    shell.type("stty -a | grep -o ' icanon.* echo '\r")
    shell.until("icanon")
    shell.type("fg\r")
    while not termios.tcgetattr(shell.process.child_fd)[3] & termios.NOFLSH:  # so it is only in a turn
        os.sched_yield()
    shell.type("typed")
    shell.type("\x03")
    shell.until("interrupted")
    shell.until("› typed")
    shell.type("\r")
    shell.until("you said 'typed'")
    shell.type("\x04")
    shell.until("closed conv-1")
