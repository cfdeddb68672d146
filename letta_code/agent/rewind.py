"""An undo as the conversation sees it: files go back, and the transcript says so.

The files are `letta_code.undo`'s; here is what the model is told of it, which messages leave the
conversation, and which memory commits of these turns stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.conversations.history import History
from letta_code.conversations.store import Conversation
from letta_code.core.text import one_line
from letta_code.undo.plan import Options
from letta_code.undo.restore import Outcome, Undo

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.history import MemoryCommit

_NAMED = 20  # files in the note for the model
_COMMITS = 200  # memory commits that are looked through


@dataclass(frozen=True, slots=True)
class Rewound:
    """What was done: to files, to the conversation (the turns whose messages left it), and the memory
    commits of these turns, which stay."""

    outcome: Outcome
    dropped: tuple[int, ...] = ()
    commits: tuple[MemoryCommit, ...] = ()


def rewind(
    conversation: Conversation,
    undo: Undo,
    memory: MemoryRepository,
    project: Path,
    options: Options,
    drop_messages: bool,
) -> Rewound:
    """Take back the last turns' file changes; with `drop_messages` the conversation goes back to before
    the oldest of them.

    Raises:
        StorageError: our files cannot be read or written; files done so far stay done.
    """
    outcome = undo.undo(options)
    if not outcome.turns:
        return Rewound(outcome)
    first = outcome.turns[0]
    dropped = turns_from(conversation.history, first) if drop_messages else ()
    commits = memory_commits(conversation, memory, dropped or outcome.turns)
    note = _dropped_note(outcome, project) if drop_messages else _note(outcome, project)
    if dropped or note:
        conversation.undo(dropped, note)
    return Rewound(outcome, dropped, commits)


def redo(conversation: Conversation, undo: Undo, project: Path, force: bool) -> Outcome:
    """Bring back the file changes that the last undo took away; messages that left stay away.

    Raises:
        StorageError: as `rewind`.
    """
    outcome = undo.redo(force)
    if names := _names((file.plan.path for file in outcome.files if file.result != "left"), project):
        turns = _turns(outcome.turns)
        conversation.undo((), f"The person brought the file changes of {turns} back after an undo: {names}.")
    return outcome


def turns_from(history: History, first: int) -> tuple[int, ...]:
    """The turns from `first` on that have messages in the conversation."""
    return tuple(sorted({entry.turn for entry in history.entries if entry.turn >= first}))


def memory_commits(
    conversation: Conversation, memory: MemoryRepository, turns: Sequence[int]
) -> tuple[MemoryCommit, ...]:
    """The commits to memory that calls of these turns made, newest first."""
    from letta_code.memory.git.log import log

    calls = {
        call.id
        for entry in conversation.history.entries
        if entry.turn in turns
        for call in entry.message.tool_calls
    }
    return tuple(
        commit
        for commit in log(memory, _COMMITS)
        if commit.trailers.get("Letta-Conversation") == conversation.id
        and commit.trailers.get("Letta-Tool-Call") in calls
    )


def _note(outcome: Outcome, project: Path) -> str:
    plans = [file.plan for file in outcome.files if file.result != "left"]  # one broken off may have done it
    parts = []
    for goes, verb in ((False, "changed back"), (True, "removed (new ones)")):
        if names := _names((plan.path for plan in plans if plan.goes == goes), project):
            parts.append(f"{verb}: {names}")
    if not parts:
        return ""
    return f"The person undid file changes of {_turns(outcome.turns)}; {'; '.join(parts)}."


def _dropped_note(outcome: Outcome, project: Path) -> str:
    left = [file.plan.path for file in outcome.files if not file.done]
    left += [plan.path for plan in outcome.others]
    names = _names(left, project)
    return f"Messages were taken back, but these files keep what was changed since: {names}." if names else ""


def _turns(turns: Sequence[int]) -> str:
    numbers = ", ".join(map(str, turns))
    return f"turn {numbers}" if len(turns) == 1 else f"turns {numbers}"


def _names(paths: Iterable[str], project: Path) -> str:
    names = [one_line(relative(path, project), 200) for path in paths]
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def relative(path: str, project: Path) -> str:
    """`path` as people read it: relative inside the project."""
    try:
        return str(Path(path).relative_to(project))
    except ValueError:
        return path
