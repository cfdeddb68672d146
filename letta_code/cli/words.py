"""What the words of a command line are: options, a subcommand, or the prompt. Pure.

`letta [PROMPT]` and `letta -p [PROMPT]` stand beside subcommands, so the words are sorted before Typer
parses them: the first word that is no option names a subcommand when it is one and no `-p` came before
it; otherwise it is the prompt. Nothing that looks like a slip becomes a prompt.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from letta_code.errors import UsageError

PRINT_FLAGS = frozenset({"-p", "--print", "--prompt"})


@dataclass(frozen=True, slots=True)
class Arranged:
    """`arguments` are for Typer; `prompt` is the prompt, or None when there is none (or a subcommand)."""

    arguments: tuple[str, ...]
    prompt: str | None = None


def arrange(words: Sequence[str], takes_value: Mapping[str, bool], commands: Sequence[str]) -> Arranged:
    """Sort the words of a command line.

    `takes_value` has every spelling of every option of the root command, and whether a value follows it.

    Raises:
        UsageError: an unknown option, more than one prompt word, or a word that is nearly a subcommand.
    """
    options: list[str] = []
    prompts: list[str] = []
    printing = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            prompts += rest
            break
        names = option_names(word, takes_value)
        if not names:
            if not prompts and not printing and word in commands:
                return Arranged((*options, word, *rest))
            prompts.append(word)
            continue
        options.append(word)
        printing = printing or not PRINT_FLAGS.isdisjoint(names)
        if takes_value.get(names[-1], False) and _value_is_next(word, names) and rest:
            options.append(rest.pop(0))
    if len(prompts) > 1:
        raise _too_many(prompts, commands, printing)
    if prompts and not printing and "--" not in words:
        _refuse_near_command(prompts[0], commands)
    return Arranged(tuple(options), prompts[0] if prompts else None)


def option_names(word: str, takes_value: Mapping[str, bool]) -> tuple[str, ...]:
    """The options that `word` spells; empty when it is a prompt word or the name of a subcommand.

    A word that begins with a dash and has white space in it is a prompt, unless it is `--option=value`.

    Raises:
        UsageError: it looks like an option and is none.
    """
    if not word.startswith("-") or word == "-":
        return ()
    if word.startswith("--"):
        name = word.split("=", 1)[0]
        if name in takes_value:
            return (name,)
        if any(char.isspace() for char in word):
            return ()
        raise _unknown(name, takes_value)
    if any(char.isspace() for char in word):
        return ()
    names: list[str] = []
    for char in word[1:]:
        name = f"-{char}"
        if name not in takes_value:
            raise _unknown(word if len(names) == 0 else name, takes_value)
        names.append(name)
        if takes_value[name]:
            break
    return tuple(names)


def split_rules(text: str) -> tuple[str, ...]:
    """The permission rules in a list separated by commas or white space: `Bash(git log:*),Edit Read`.

    Raises:
        UsageError: the parentheses do not match.
    """
    rules: list[str] = []
    current = ""
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            break
        if depth == 0 and (char == "," or char.isspace()):
            rules.append(current)
            current = ""
        else:
            current += char
    if depth != 0:
        raise UsageError(f"the parentheses in {text!r} do not match", "for example 'Bash(git log:*),Edit'")
    return tuple(rule for rule in (*rules, current) if rule)


def _value_is_next(word: str, names: Sequence[str]) -> bool:
    if word.startswith("--"):
        return "=" not in word
    return len(word) == len(names) + 1


def _unknown(name: str, takes_value: Mapping[str, bool]) -> UsageError:
    near = difflib.get_close_matches(name, takes_value, n=1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else "see letta --help; a prompt that begins with a dash follows --"
    )
    return UsageError(f"no such option: {name}", hint)


def _too_many(prompts: Sequence[str], commands: Sequence[str], printing: bool) -> UsageError:
    near = difflib.get_close_matches(prompts[0], commands, n=1)
    if near and not printing:
        return UsageError(
            f"no such command: {prompts[0]}", f"did you mean: letta {' '.join((near[0], *prompts[1:]))}"
        )
    flag = "-p " if printing else ""
    return UsageError(
        f"the prompt must be one word or quoted, but {len(prompts)} words were given",
        f'write: letta {flag}"{" ".join(prompts)}"',
    )


def _refuse_near_command(word: str, commands: Sequence[str]) -> None:
    near = difflib.get_close_matches(word, commands, n=1, cutoff=0.8)
    if near or word == "help":
        meant = f"letta {near[0]}" if near else "letta --help"
        raise UsageError(
            f"no such command: {word}", f"did you mean: {meant}    (as a prompt: letta -- {word})"
        )
