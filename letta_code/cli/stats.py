"""`letta stats`: tokens, cache hits and cost by model, of one conversation by turn too."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from letta_code.cli.place import Place, complete_agents, complete_conversations
from letta_code.cli.show import as_json, label, table
from letta_code.errors import ConversationError, UsageError

if TYPE_CHECKING:
    from letta_code.conversations.summary import ConversationSummary


def stats_command(
    ctx: typer.Context,
    conversation: Annotated[
        str | None,
        typer.Option(
            metavar="ID", autocompletion=complete_conversations, help="Only this one, turn by turn."
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", "-a", metavar="ID|NAME", autocompletion=complete_agents, help="Only this agent's."
        ),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Only conversations that were started in this folder."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Only from then on: 2026-11-30 or 2026-11-30T14:00.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tokens, cache hits and cost of all conversations, by model.

    Tokens are what the providers counted, also of turns that failed; the cost is theirs at the prices of
    `letta models` today. A model whose price is not known is named, and is in no sum.
    """
    from letta_code.cli import spending as show

    place: Place = ctx.obj
    chosen = _chosen(place, conversation, agent, project)
    store, start = place.conversations(), _start(since)
    found = [store.spending(item.key, item.id, start) for item in chosen]
    found = [spending for spending in found if spending.spent or spending.broken]
    everything = [item for spending in found for item in spending.spent]
    if json:
        data: dict[str, Any] = {
            "conversations": len(found),
            "total": show.sum_data(show.sum_of(everything)),
            "broken_off": sum(sum(spending.broken.values()) for spending in found),
            "models": [
                {"model": model, **show.sum_data(total)} for model, total in show.by_model(everything).items()
            ],
        }
        if conversation is not None:
            data["turns"] = [
                {"turn": turn, "ended": spending.ends.get(turn), **show.sum_data(total)}
                for spending in found
                for turn, total in show.by_turn(spending).items()
            ]
        as_json(data)
        return
    if not found:
        sys.stdout.write("no request was answered yet\n")
        return
    if conversation is not None:
        table(show.turn_rows(found[0]))
        sys.stdout.write("\n")
    table(show.model_rows(everything))
    count = "" if conversation is not None else f"{len(found):,} conversation{'s' if len(found) > 1 else ''}"
    for line in (count, *show.doubts(found)):
        sys.stdout.write(f"{line}\n" if line else "")


def _chosen(
    place: Place, conversation: str | None, agent: str | None, project: Path | None
) -> list[ConversationSummary]:
    store = place.conversations()
    if conversation is not None:
        if agent is not None or project is not None:
            raise UsageError("--conversation names one already", "leave --agent and --project out")
        return [store.find(conversation)]
    key = place.agents().find(agent).key if agent else None
    chosen = list(store.list(key))
    if project is not None:
        folder = os.path.realpath(place.project / project)
        chosen = [item for item in chosen if item.cwd and os.path.realpath(item.cwd) == folder]
        if not chosen:
            raise ConversationError(
                f"no conversation was started in {label(folder)}", "letta stats shows all"
            )
    return chosen


def _start(since: str | None) -> datetime | None:
    from letta_code.core.times import moment

    try:
        return None if since is None else moment(since)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from error
