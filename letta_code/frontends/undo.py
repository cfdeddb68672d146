"""Undo in words: what would be done or was done to each file; and the chat's question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.agent.rewind import Rewound, relative
from letta_code.core.text import one_line
from letta_code.errors import UsageError
from letta_code.undo.plan import FilePlan, Options
from letta_code.undo.restore import FileResult, Outcome

if TYPE_CHECKING:
    from letta_code.frontends.host import Host, Session

_COMMANDS_FILES = 30  # files of commands that are listed

WORDS = ("--commands", "--over-my-changes", "--drop-messages", "--redo", "--dry-run")
"""The words that `/undo` takes beside a number, as `letta undo` does."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for: `letta undo` and `/undo` alike."""

    options: Options
    drop_messages: bool = False
    redo: bool = False
    dry: bool = False


def wish(argument: str) -> Wish:
    """What the words behind `/undo` ask for.

    Raises:
        UsageError: they are not understood.
    """
    words = argument.split()
    numbers = [word for word in words if word.isdecimal() and int(word) > 0]
    unknown = [word for word in words if word not in WORDS and word not in numbers]
    if unknown or len(numbers) > 1:
        raise UsageError(f"/undo does not know {one_line(argument)!r}", f"/undo [N] [{' '.join(WORDS)}]")
    if "--redo" in words and (numbers or "--commands" in words or "--drop-messages" in words):
        raise UsageError("--redo takes the last undo back as a whole", "leave N and the other words out")
    options = Options(int(numbers[0]) if numbers else 1, "--commands" in words, "--over-my-changes" in words)
    return Wish(options, "--drop-messages" in words, "--redo" in words, "--dry-run" in words)


def lines_of(outcome: Outcome, project: Path, redo: bool = False) -> list[str]:
    """An outcome for people, one line for each file; not yet safe for a terminal."""
    lines = [] if outcome.turns else [_nothing(outcome, redo)]
    if outcome.turns:
        turns = ", ".join(map(str, outcome.turns))
        lines.append(f"turn {turns}" if len(outcome.turns) == 1 else f"turns {turns}")
    lines += [_file_line(file, project, outcome.dry) for file in outcome.files]
    if outcome.others:
        lines.append("changed while a command ran, left as it is (--commands takes this back, too):")
        lines += _others(outcome.others, project)
    for command, note in outcome.uncovered:
        lines.append(f"  what `{one_line(command, 60)}` changed is not known: {note}")
    if outcome.turns and outcome.skipped:
        later = ", ".join(map(str, outcome.skipped))
        lines.append(f"later changes are left as they are: turn {later} (by commands, or left before)")
    return lines


def ending(rewound: Rewound) -> list[str]:
    """What else is to be said after an undo."""
    lines = []
    if rewound.dropped:
        turns = ", ".join(map(str, rewound.dropped))
        lines.append(f"no longer part of the conversation: turn {turns}")
    for commit in rewound.commits:
        reason = one_line(commit.reason, 60)
        lines.append(f"memory keeps: {reason}; `letta memory revert {commit.revision[:10]}` takes it back")
    return lines


def complete(outcome: Outcome) -> bool:
    """Whether every file is as it was."""
    return all(file.done for file in outcome.files)


def _nothing(outcome: Outcome, redo: bool) -> str:
    if redo:
        return "there is no undo to take back"
    words = "no turn of this conversation changed a file"
    if not outcome.skipped:
        return words
    turns = ", ".join(map(str, outcome.skipped))
    return f"{words} by a file tool; --commands takes back what commands changed in turn {turns}"


def _file_line(file: FileResult, project: Path, dry: bool) -> str:
    plan = file.plan
    verb = {"restored": "restored", "removed": "removed", "unchanged": "as it was", "left": "left"}[
        file.result
    ]
    if dry and file.result in ("restored", "removed"):
        verb = {"restored": "restore", "removed": "remove"}[file.result]
    return f"  {verb:<9} {relative(plan.path, project)}{reason(file)}"


def reason(file: FileResult) -> str:
    """Why a file is left or not wholly restored; "" when there is nothing to say."""
    plan = file.plan
    force = "--over-my-changes"
    command = f"`{one_line(plan.command, 60)}`"
    match plan.why:
        case "newer":
            return f": changed since; {force} overwrites that"
        case "gone":
            return f": it is not there any more; {force} brings it back"
        case "command":
            return f": changed since, while {command} ran; --commands takes that back, too"
        case "unsure" if file.result == "restored":
            return f": to what it became while {command} ran, which may be yours; {force} goes further back"
        case "unsure":
            return f": {command} was not seen to end, so the change may be yours; {force} overwrites it"
        case "between" if plan.command:
            return f": to what it was after {command}; --commands goes further back"
        case "between":
            return f": to what you had made of it during the turn; {force} goes further back"
        case "lost":
            return f": what it held is not kept ({plan.detail or 'only the latest 200 MB are'})"
        case "blocked":
            return f": {plan.detail}"
        case "":
            pass
    if file.result == "removed":
        return f" (it was new{f', {command}' if plan.by_command else ''})"
    return f" ({command})" if plan.by_command and file.result == "restored" else ""


def _others(others: tuple[FilePlan, ...], project: Path) -> list[str]:
    lines = []
    for plan in others[:_COMMANDS_FILES]:
        what = {"absent": "vanished"}.get(plan.now.kind, "new" if plan.target.kind == "absent" else "changed")
        lines.append(f"  {what:<9} {relative(plan.path, project)} (`{one_line(plan.command, 60)}`)")
    if len(others) > _COMMANDS_FILES:
        lines.append(f"  and {len(others) - _COMMANDS_FILES:,} more")
    return lines


def choices(outcome: Outcome, asked: Wish) -> list[tuple[str, Wish]]:
    """What can be done after a preview: its name and the wish it stands for."""
    if asked.redo or asked.drop_messages:
        return [("do it", asked)]
    found = [("files", asked), ("files and messages", replace(asked, drop_messages=True))]
    if _commands_did_more(outcome):
        wider = replace(asked, options=replace(asked.options, commands=True))
        found.append(("files, also what commands changed", wider))
    return found


def question(offered: Sequence[tuple[str, Wish]]) -> str:
    """The question that offers `choices`."""
    names = [*(name for name, _ in offered), "cancel"]
    return " · ".join(f"{number} {name}" for number, name in enumerate(names, 1)) + " › "


def _commands_did_more(outcome: Outcome) -> bool:
    """Whether `--commands` would take back more."""
    return bool(outcome.others) or any(
        file.plan.why == "command" or (file.plan.why == "between" and file.plan.command)
        for file in outcome.files
    )


def chosen(offered: Sequence[tuple[str, Wish]], answer: str) -> Wish | None:
    """What an answer to `question` means; None: nothing is to be done."""
    word = answer.strip().lower()
    if word in ("y", "yes"):
        return offered[0][1]
    return next((wanted for number, (_, wanted) in enumerate(offered, 1) if word == str(number)), None)


async def run_undo(argument: str, session: Session, host: Host, say: Callable[[str], None]) -> None:
    """`/undo`: show what would be done, ask, do it.

    Raises:
        LettaError: the words are not understood, or our files cannot be read or written.
    """
    asked = wish(argument)
    project = session.workspace.project
    shown = host.undo(session, replace(asked, dry=True)).outcome
    for line in lines_of(shown, project, asked.redo):
        say(line)
    if asked.dry or not shown.turns:
        return
    offered = choices(shown, asked)
    decided = chosen(offered, await _ask(question(offered)))
    if decided is None:
        say("nothing was changed")
        return
    done = host.undo(session, decided)
    for line in [*lines_of(done.outcome, project, asked.redo), *ending(done)]:
        say(line)


async def _ask(question: str) -> str:
    """The person's answer; "" for Ctrl-C and Ctrl-D."""
    from prompt_toolkit import PromptSession

    prompt: PromptSession[str] = PromptSession()
    try:
        return await prompt.prompt_async(question, handle_sigint=False)
    except (KeyboardInterrupt, EOFError):
        return ""
