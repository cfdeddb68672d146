"""`letta undo`: what the last turns changed in files goes back. Also puts together what undo consists of."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from letta_code.cli.place import Place, complete_conversations
from letta_code.cli.show import as_json, label
from letta_code.core.ids import AgentKey
from letta_code.errors import EXIT_FAILED, ConversationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from letta_code.agent.rewind import Rewound
    from letta_code.conversations.store import Conversation
    from letta_code.frontends.host import Session as SessionView
    from letta_code.frontends.undo import Wish
    from letta_code.tools.undoing import Undoing
    from letta_code.undo.restore import Outcome, Undo


def tools_undo(place: Place, key: AgentKey, conversation_id: str, environment: Mapping[str, str]) -> Undoing:
    """What a conversation's tools tell of their changes. `environment` is for ripgrep."""
    from letta_code.tools.undoing import Undoing
    from letta_code.undo.recorder import Recorder
    from letta_code.undo.store import UndoStore

    store = UndoStore(place.paths.undo(key, conversation_id))
    recorder = Recorder(store, place.project, place.paths.project_copies(place.project))
    return Undoing(recorder, place.project, environment)


def undo_of(place: Place, key: AgentKey, conversation_id: str) -> Undo:
    """The undo of a conversation, as its journal is now."""
    from letta_code.undo.restore import Undo
    from letta_code.undo.store import UndoStore

    return Undo(UndoStore(place.paths.undo(key, conversation_id)), place.paths.project_copies)


def undo_command(
    ctx: typer.Context,
    turns: Annotated[int, typer.Argument(min=1, metavar="N", help="How many turns that changed files.")] = 1,
    conversation: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            autocompletion=complete_conversations,
            help="Which conversation. Without it: the one this folder used last.",
        ),
    ] = None,
    drop_messages: Annotated[
        bool, typer.Option("--drop-messages", help="Take these turns out of the conversation as well.")
    ] = False,
    commands: Annotated[
        bool, typer.Option("--commands", help="Take back what changed while shell commands ran, too.")
    ] = False,
    over_my_changes: Annotated[
        bool,
        typer.Option("--over-my-changes", help="Also where a file was changed since; that change is kept."),
    ] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Take the last undo back.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Give files back what they held before the conversation's last turns changed them.

    Only files that the agent changed, and none that was changed since. Git's index, commits and stash and
    files that Git does not track stay as they are. --redo takes an undo back.
    """
    from letta_code.frontends.undo import Wish, complete
    from letta_code.undo.plan import Options

    place: Place = ctx.obj
    if redo and (drop_messages or commands or turns != 1):
        raise UsageError("--redo takes the last undo back as a whole", "leave N and the other options out")
    key, found = _conversation(place, conversation)
    wish = Wish(Options(turns, commands, over_my_changes), drop_messages, redo, dry_run)
    rewound = _done(place, key, found, wish)
    if json:
        as_json(_data(found, rewound))
    else:
        _print(rewound, place.project, redo)
    return 0 if dry_run or complete(rewound.outcome) else EXIT_FAILED


def _conversation(place: Place, wanted: str | None) -> tuple[AgentKey, str]:
    if wanted:
        found = place.conversations().find(wanted)
        return found.key, found.id
    use = place.projects().last(place.project)
    if use is None or use.conversation is None:
        raise ConversationError("no conversation was started in this folder", "--conversation ID names one")
    return use.agent, use.conversation


def _done(place: Place, key: AgentKey, conversation_id: str, wish: Wish) -> Rewound:
    if wish.dry:
        return _previewed(place, key, conversation_id, wish)
    try:
        conversation = place.conversations().open(key, conversation_id)
    except ConversationError as error:
        if "another process" not in error.message:
            raise
        raise ConversationError(error.message, "say /undo there, or close it") from error
    try:
        return _carried_out(place, conversation, wish)
    finally:
        conversation.close()


def undo_in(place: Place, session: SessionView, wish: Wish) -> Rewound:
    """The undo of an open session (`/undo`).

    Raises:
        LettaError: a turn is running, or our files cannot be read or written.
    """
    from letta_code.agent.session import Session

    if not isinstance(session, Session):
        raise TypeError("the session was not opened here")
    conversation = session.conversation
    if wish.dry:
        return _previewed(place, conversation.key, conversation.id, wish)
    if session.busy:
        raise UsageError("a turn is running", "wait for its end, or interrupt it")
    rewound = _carried_out(place, conversation, wish)
    if rewound.dropped:
        session.reminder.forget()  # what was told in the messages that left is told again
    return rewound


def _previewed(place: Place, key: AgentKey, conversation_id: str, wish: Wish) -> Rewound:
    from letta_code.agent.rewind import Rewound

    undo = undo_of(place, key, conversation_id)
    outcome = undo.redo(wish.options.force, dry=True) if wish.redo else undo.preview(wish.options)
    return Rewound(outcome)


def _carried_out(place: Place, conversation: Conversation, wish: Wish) -> Rewound:
    from letta_code.agent import rewind

    undo = undo_of(place, conversation.key, conversation.id)
    if wish.redo:
        return rewind.Rewound(rewind.redo(conversation, undo, place.project, wish.options.force))
    memory = place.agents().memory(place.agents().load(conversation.key))
    return rewind.rewind(conversation, undo, memory, place.project, wish.options, wish.drop_messages)


def _print(rewound: Rewound, project: Path, redo: bool) -> None:
    from letta_code.frontends.undo import ending, lines_of

    for line in [*lines_of(rewound.outcome, project, redo), *ending(rewound)]:
        sys.stdout.write(f"{label(line)}\n")


def _data(conversation_id: str, rewound: Rewound) -> dict[str, Any]:
    outcome: Outcome = rewound.outcome
    return {
        "conversation_id": conversation_id,
        "dry_run": outcome.dry,
        "turns": list(outcome.turns),
        "files": [
            {
                "path": file.plan.path,
                "result": file.result,
                "why": file.plan.why or None,
                "detail": file.plan.detail or None,
                "turn": file.plan.turn,
                "command": file.plan.command or None,
            }
            for file in outcome.files
        ],
        "commands_changed": [{"path": plan.path, "command": plan.command} for plan in outcome.others],
        "not_covered": [{"command": command, "why": why} for command, why in outcome.uncovered],
        "dropped_turns": list(rewound.dropped),
        "memory_commits": [commit.revision for commit in rewound.commits],
    }
