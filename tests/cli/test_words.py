"""Which words are options, a subcommand or the prompt (F20), and lists of permission rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.cli.words import Arranged, arrange, split_rules
from letta_code.errors import UsageError

OPTIONS = {
    "-p": False,
    "--print": False,
    "--prompt": False,
    "--model": True,
    "-m": True,
    "--continue": False,
    "-c": False,
    "--append-system-prompt": True,
}
COMMANDS = ("agents", "memory", "context", "models")


def arranged(*words: str) -> Arranged:
    return arrange(words, OPTIONS, COMMANDS)


@pytest.mark.parametrize(
    ("words", "arguments", "prompt"),
    [
        ((), (), None),
        (("fix it",), (), "fix it"),
        (("-p", "hi"), ("-p",), "hi"),
        (("hi there", "-p"), ("-p",), "hi there"),
        (("-p", "--model", "a/b", "hi"), ("-p", "--model", "a/b"), "hi"),
        (("-pm", "a/b", "hi"), ("-pm", "a/b"), "hi"),
        (("-pma/b", "hi"), ("-pma/b",), "hi"),
        (("--model=a/b", "-p", "hi"), ("--model=a/b", "-p"), "hi"),
        (("-p", "memory"), ("-p",), "memory"),
        (("memory", "log", "-n", "3"), ("memory", "log", "-n", "3"), None),
        (("-c", "memory"), ("-c", "memory"), None),
        (("-p", "- list the files"), ("-p",), "- list the files"),
        (("-p", "--all of them"), ("-p",), "--all of them"),
        (("--", "--verbatim"), (), "--verbatim"),
        (("--", "memory"), (), "memory"),
        (("--append-system-prompt=be brief", "-p", "hi"), ("--append-system-prompt=be brief", "-p"), "hi"),
    ],
)
def test_words_are_sorted(words: tuple[str, ...], arguments: tuple[str, ...], prompt: str | None) -> None:
    assert arranged(*words) == Arranged(arguments, prompt)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("-p", "--modle", "x", "hi"), "--model"),
        (("agnets", "list"), "letta agents list"),
        (("memroy",), "letta memory"),
        (("help",), "letta --help"),
        (("fix", "the", "bug"), 'letta "fix the bug"'),
        (("-p", "fix", "the", "bug"), 'letta -p "fix the bug"'),
        (("-px", "hi"), "--help"),
    ],
)
def test_f20_a_slip_is_refused_with_what_was_meant(words: tuple[str, ...], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        arranged(*words)
    assert hint in caught.value.hint


@given(st.text(min_size=1))
def test_any_text_behind_two_dashes_is_the_prompt_as_it_is(text: str) -> None:
    assert arranged("-p", "--", text) == Arranged(("-p",), text)


def test_lists_of_rules_are_split_outside_parentheses() -> None:
    assert split_rules("Bash(git log:*, -n 3),Edit  Read") == ("Bash(git log:*, -n 3)", "Edit", "Read")
    assert split_rules(" , ") == ()
    with pytest.raises(UsageError):
        split_rules("Bash(git")
    with pytest.raises(UsageError):
        split_rules("Bash)git(")
