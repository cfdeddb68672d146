"""The chat, on a real pseudo-terminal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from letta_code.core.tooling import Decision
from letta_code.frontends.repl import parse_answer
from tests.frontends.terminal import FAKE, Terminal


@pytest.fixture
def open_chat(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(scene: str, *words: str) -> Terminal:
        opened.append(Terminal(tmp_path, [*FAKE, "chat", scene, *words]))
        if not words:
            opened[-1].until("›")
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.process.close(force=True)


def test_a_turn_shows_thought_tools_diff_output_answer_and_usage(open_chat: Callable[..., Terminal]) -> None:
    text = open_chat("work", "go").until("window 200.0k")
    for part in (
        "✻ The test fails because the last row is left out.",
        "● Edit src/total.py",
        "9 - line 9",
        "9 + line nine",
        "… 18 more lines",
        "exit code 1",
        "▸ Testing",
        "• range(1, n)",
        "$0.0123",
    ):
        assert part in text
    assert "[31m" not in text


def test_f10_pasted_lines_are_one_message(open_chat: Callable[..., Terminal]) -> None:
    chat = open_chat("echo")
    chat.type("\x1b[200~one\ntwo\r\nthree\x1b[201~")
    chat.until("three")
    chat.type("\r")
    chat.until(r"you said 'one\ntwo\nthree'")


@pytest.mark.parametrize("newline", ["\n", "\x1b\r", "\\\r", "\x1b[106;5u", "\x1b[13;2u"])
def test_f11_every_spelling_of_a_newline_is_one(open_chat: Callable[..., Terminal], newline: str) -> None:
    chat = open_chat("echo")
    chat.type(f"one{newline}two\r")
    chat.until(r"you said 'one\ntwo'")


def test_where_always_is_not_offered_the_answers_are_one_and_two() -> None:
    assert parse_answer("2 not now", offered=False) == Decision("deny", "not now")
    assert parse_answer("3", offered=False) == Decision("deny")
    assert parse_answer("2", offered=True) == Decision("always")
    assert parse_answer("a", offered=False) is None


def test_f12_the_caret_is_on_the_right_cell_among_wide_characters(open_chat: Callable[..., Terminal]) -> None:
    chat = open_chat("echo")
    chat.type("한글\x1b[D")
    chat.until("한")
    chat.until(lambda text: chat.screen.cursor.x == 4)  # "› " and one character of two cells
    chat.type("x\r")
    chat.until("you said '한x글'")


def test_permission_is_asked_with_its_rule_and_answered(open_chat: Callable[..., Terminal]) -> None:
    chat = open_chat("ask")
    chat.type("go\r")
    text = chat.until("1 once · 2 always · 3 no")
    assert "? Run: git push" in text
    assert "always: Bash(git push:*)" in text
    assert "it is not read-only" in text
    assert text.index("I push it now.") < text.index("? Run")
    chat.type("maybe\r")
    chat.type("3 use a branch\r")
    chat.until("decided deny: use a branch")


def test_ctrl_c_interrupts_the_turn_and_keeps_the_session_and_what_was_typed(
    open_chat: Callable[..., Terminal],
) -> None:
    chat = open_chat("echo")
    chat.type("hang\r")
    text = chat.until("child ")
    child = int(text.split("child ")[1].split()[0])
    chat.type("typed ahead")
    chat.type("\x03")
    chat.until("interrupted")
    chat.until("› typed ahead")
    assert not psutil.pid_exists(child)
    chat.type("\r")
    chat.until("you said 'typed ahead'")
    chat.type("\x04")
    assert chat.left() == 0


def test_b05_sigterm_during_a_turn_ends_the_chat(open_chat: Callable[..., Terminal]) -> None:
    chat = open_chat("echo", "hang")
    child = int(chat.until("child ").split("child ")[1].split()[0])
    chat.process.kill(signal.SIGTERM)
    assert chat.left() == 143
    assert not psutil.pid_exists(child)


def test_ctrl_c_twice_leaves(open_chat: Callable[..., Terminal]) -> None:
    chat = open_chat("echo")
    chat.type("\x03")
    chat.until("Ctrl-C again")
    chat.type("\x03")
    assert chat.left() == 0
    assert "closed conv-1" in chat.text


def test_slash_commands(open_chat: Callable[..., Terminal], tmp_path: Path) -> None:
    chat = open_chat("echo")
    for line, wanted in (
        ("/help", "Alt+Enter"),
        ("/modle", "did you mean /model?"),
        ("/model fake/two", "the next request goes to fake/two"),
        ("/resume", "Fix totals"),
        ("/resume conv-9", "no such conversation: conv-9"),
        ("/resume conv-3", "stopped background command of conv-1"),
        ("/new", "closed conv-3"),
        ("/memory", "aaaaaaaaaa"),
        ("/context", "system 2,000 tokens"),
        ("/cost", "2 requests  $0.0120"),
        ("/search lost words", "conv-1:message-1 lost words"),
        ("/compact", "12 messages summarised, 9,000 → 900 tokens"),
        ("/compact mind the gap", "Summary: mind the gap"),
        ("/compact nothing", "there is nothing to compact yet"),
        ("/etc/hosts is odd", "you said '/etc/hosts is odd'"),
    ):
        chat.type(f"{line}\r")
        chat.until(wanted)
    chat.type("/compact for ever\r")
    chat.until("it is being summarised")
    chat.type("\x03")
    chat.until("✗ interrupted")
    chat.type("/exit\r")
    assert chat.left() == 0
    assert (tmp_path / "data" / "history").stat().st_mode & 0o777 == 0o600


def test_a_bug_is_shown_as_one_with_its_log(open_chat: Callable[..., Terminal], tmp_path: Path) -> None:
    # The path may be longer than the terminal is wide.
    text = open_chat("bug", "go").until(lambda text: "letta.log" in text.replace("\n", ""))
    assert "a bug in Letta Code: KeyError: 'x'" in text


def test_shift_tab_changes_the_permission_mode_and_it_lasts(open_chat: Callable[..., Terminal]) -> None:
    chat = open_chat("echo")
    for mode in ("acceptEdits", "plan"):
        chat.type("\x1b[Z")
        chat.until(f"{mode} ›")
    chat.type("typed\x1b[Z")
    chat.until(lambda text: "\n› typed" in text and "plan" not in text)
    chat.type("\r")
    chat.until("you said 'typed'")
    chat.type("/permissions plan\r")
    chat.until("plan ›")
    chat.type("/new\r")
    chat.until("conv-2")
    chat.type("/permissions\r")
    text = chat.until("changes the mode: default, acceptEdits")
    assert "mode plan" in text
    assert "deny   Read(.env)  (.letta/settings.json)" in text
    chat.type("/permissions bypassPermissions\r")
    chat.until("no such permission mode")
