"""Ctrl-C in every phase of a turn, and every end of a run with processes that hide: the real letta, a real
terminal, the scripted model; what is left is checked by pid and in the conversation."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.cli.harness import Letta
from tests.frontends.terminal import Terminal
from tests.model_server import ModelServer, call, turn

MODEL = ("-m", "anthropic/claude-sonnet-5-5")
WAIT = 50.0  # seconds; only a deadline

NASTY = (
    "trap '' HUP; ./s & nohup ./s >/dev/null 2>&1 & setsid ./s & ( ( ./s & ) & ); "
    "env -i setsid nohup ./s >/dev/null 2>&1 & disown; ./s"
)
"""Six processes that note their pids."""


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def noted(letta: Letta, count: int) -> list[int]:
    """The pids that `./s` noted, once there are so many."""
    file = letta.project / "noted"
    while not file.exists() or file.read_text().count("\n") < count:
        os.sched_yield()
    return [int(line) for line in file.read_text().split()]


@pytest.fixture
def sleeper(letta: Letta) -> Letta:
    script = letta.project / "s"
    script.write_text("#!/bin/sh\necho $$ >>noted\nexec sleep 300\n")
    script.chmod(0o700)
    return letta


# One shot -----------------------------------------------------------------------------------------


@pytest.fixture
def served(sleeper: Letta) -> Iterator[ModelServer]:
    script = [
        turn("I run it.", call("Bash", command=NASTY), when={"contains": "stay with it"}),
        turn("Done.", call("Bash", command=NASTY.rpartition(";")[0]), when={"contains": "leave it"}),
        turn("That is all.", repeat=True),
    ]
    with ModelServer(script) as server:
        sleeper.environment = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x"}
        yield server


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ((signal.SIGINT,), 130),
        ((signal.SIGINT, signal.SIGINT), 130),
        ((signal.SIGTERM,), 143),
        ((signal.SIGHUP,), 129),
        ((signal.SIGKILL,), -9),
    ],
)
def test_b05_no_process_outlives_a_run(
    sleeper: Letta, served: ModelServer, numbers: tuple[signal.Signals, ...], code: int
) -> None:
    with sleeper.start("-p", *MODEL, "--permission-mode", "bypassPermissions", "stay with it") as process:
        pids = noted(sleeper, 6)
        assert all(map(alive, pids))
        for number in numbers:
            process.send_signal(number)
        assert process.wait(WAIT) == code
        assert process.stderr is not None
        process.stderr.read()  # to its end: keepers hold no stream of ours
    while code == -9 and any(map(alive, pids)):  # the keeper ends them: nobody waits for that
        os.sched_yield()
    assert not any(map(alive, pids))
    assert sleeper("-p", "-c", *MODEL, "again").out == "That is all.\n"
    assert served.violations == []
    results = [text for text in _results(served) if "nterrupted" in text or "unknown" in text]
    assert len(results) == 1


def test_f06_a_run_ends_though_background_processes_do_not(sleeper: Letta, served: ModelServer) -> None:
    done = sleeper("-p", *MODEL, "--permission-mode", "bypassPermissions", "leave it")
    assert done.out == "That is all.\n", done.err
    assert "stopped background command bash_1: " in done.err
    assert not any(map(alive, noted(sleeper, 5)))
    assert any("Still running as bash_1" in text for text in _results(served))


def _results(server: ModelServer) -> list[str]:
    """The texts of all tool results in the last request."""
    found = []
    for message in server.requests[-1].body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        for block in blocks:
            if block["type"] == "tool_result":
                found.append(str(block["content"]))
    return found


# The chat -----------------------------------------------------------------------------------------


class Chat:
    def __init__(self, letta: Letta, server: ModelServer, *words: str) -> None:
        letta.environment = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x"}
        variables = letta.variables({"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"})
        self.letta = letta
        self.server = server
        self.terminal = Terminal(letta.project, letta.command(*MODEL, *words), variables)
        self.terminal.until("\n›")
        self._interrupted = 0

    def say(self, text: str) -> None:
        self.terminal.type(f"{text}\r")

    def interrupt(self) -> None:
        """Ctrl-C, and the prompt is back."""
        self.terminal.type("\x03")
        self.terminal.until("✗ interrupted")
        self.terminal.until(lambda text: text.rstrip().endswith("›"))
        self.terminal.type("\x0c")  # an empty screen for the next one
        self.terminal.until(lambda text: "✗ interrupted" not in text)


def stalled(text: str, said: str, **more: Any) -> dict[str, Any]:
    return turn(text, when={"contains": said}, fault={"stall": "forever", **more})


def test_b05_ctrl_c_interrupts_a_turn_in_every_phase_and_the_chat_goes_on(sleeper: Letta) -> None:
    fifo = sleeper.project / "fifo"
    os.mkfifo(fifo)
    reading = [call("LS", path="."), call("Bash", command="cat fifo"), call("Bash", command="cat ./fifo")]
    memory = {
        "command": "create",
        "file_path": "system/x.md",
        "description": "d",
        "file_text": "x",
        "reason": "r",
        "source": "user-stated",
    }
    script = [
        stalled("never", "the head"),
        stalled("You see this, " * 20, "the stream", after=6),
        turn("x", when={"contains": "back-off"}, fault={"status": 529, "headers": {"retry-after": "40"}}),
        turn("I run.", call("Bash", command=NASTY), when={"contains": "a tool"}),
        turn("I read.", *reading, when={"contains": "readers"}),
        turn("I ask.", call("Write", file_path="/etc/x", content="x"), when={"contains": "a question"}),
        turn("I ask.", call("Write", file_path="/etc/x", content="x"), when={"contains": "a reason"}),
        turn("I keep it.", call("memory", **memory), when={"contains": "a commit"}),
        turn("Still here.", when={"contains": "at last"}),
    ]
    with ModelServer(script) as server:
        chat = Chat(sleeper, server, "--allowed-tools", "Bash,memory")
        try:
            _every_phase(chat, server)
        finally:
            chat.terminal.process.close(force=True)
        assert server.violations == []
        server.assert_finished()
        results = _results(server)
        assert sum("Interrupted by the person while it ran" in text for text in results) == 4
        assert sum("before it ran; nothing was done" in text for text in results) == 2
        assert any("fifo" in text and "Interrupted" not in text for text in results)  # LS had finished


def _every_phase(chat: Chat, server: ModelServer) -> None:
    terminal = chat.terminal
    chat.say("the head")
    server.wait_for_requests(1, WAIT)
    chat.interrupt()
    chat.say("the stream")
    server.wait_for_requests(2, WAIT)
    chat.interrupt()
    chat.say("back-off")
    terminal.until("retry 1")
    chat.interrupt()
    chat.say("a tool")
    pids = noted(chat.letta, 6)
    chat.interrupt()
    assert not any(map(alive, pids))
    chat.say("readers")
    process = psutil.Process(terminal.process.pid)
    while len(cats := [one for one in process.children(recursive=True) if one.name() == "cat"]) != 2:
        os.sched_yield()
    chat.interrupt()
    assert not any(alive(one.pid) for one in cats)
    chat.say("a question")
    terminal.until("3 no ›")
    chat.interrupt()
    chat.say("a reason")
    terminal.until("3 no ›")
    terminal.type("3\r")
    terminal.until("no reason) ›")
    chat.interrupt()
    _in_a_commit(chat)
    chat.say("at last")
    terminal.until("Still here.")
    terminal.type("\x04")
    assert terminal.left() == 0


def _in_a_commit(chat: Chat) -> None:
    """Another writer holds the lock of memory while the commit waits for it."""
    (git_dir,) = chat.letta.home.glob("memfs/*/*/repo.git")
    with (git_dir / "letta.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        chat.say("a commit")
        chat.terminal.until("● ")
        chat.interrupt()
