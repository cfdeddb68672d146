"""`letta conversations`: list, search, show, copy and delete conversations."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.compaction import compact_command
from letta_code.cli.memory.common import refuse_agents, whose
from letta_code.cli.place import Place, complete_agents, complete_conversations
from letta_code.cli.recall import own, search_command
from letta_code.cli.show import as_json, label, local_time, table, visible
from letta_code.errors import UsageError

if TYPE_CHECKING:
    from letta_code.conversations.compaction import Compaction
    from letta_code.conversations.history import Entry, Partial

app = typer.Typer(
    help="List, search, show, copy and delete conversations.", no_args_is_help=True, rich_markup_mode=None
)
app.command("search")(search_command)
app.command("compact")(compact_command)


@app.command("list")
def list_conversations(
    ctx: typer.Context,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="ID|NAME",
            autocompletion=complete_agents,
            help="Only those of this agent.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """All conversations, the last used first."""
    place: Place = ctx.obj
    key = whose(place, agent).key if agent else own(place)
    found = place.conversations().list(key)
    if json:
        as_json(
            [
                {
                    "id": item.id,
                    "agent_id": item.key.agent,
                    "title": item.title,
                    "created_at": item.created_at,
                    "updated_at": item.updated_at,
                    "turns": item.turns,
                    "cwd": item.cwd,
                    "forked_from": item.forked_from or None,
                }
                for item in found
            ]
        )
        return
    names = {state.id: state.name for state in place.agents().list()}
    table(
        [
            [
                item.id,
                local_time(item.updated_at),
                f"{item.turns} turns",
                label(names.get(item.key.agent, item.key.agent)),
                label(item.title),
            ]
            for item in found
        ]
    )


@app.command()
def show(
    ctx: typer.Context,
    conversation: Annotated[
        str,
        typer.Argument(
            metavar="ID|POINTER",
            autocompletion=complete_conversations,
            help="Which one; its beginning is enough. ID:MESSAGE, as searches print it, shows that message "
            "and those around it.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON: header, messages, steps.")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, help="With a pointer: messages on each side.")
    ] = 3,
) -> None:
    """One conversation, message by message."""
    from letta_code.conversations.summary import origin_of
    from letta_code.core.codec import dump

    place: Place = ctx.obj
    if ":" in conversation:
        _show_page(place, conversation, context, json)
        return
    found = place.conversations().find(conversation, own(place))
    history = place.conversations().read(found.id, found.key)
    for problem in history.problems:
        sys.stderr.write(f"letta: {label(problem)}\n")
    if json:
        as_json(
            {
                "conversation": history.header,
                "messages": dump(history.entries),
                "steps": dump(history.steps),
                "unfinished": dump(history.partials),
                "compactions": dump(history.compactions),
            }
        )
        return
    if origin := origin_of(history.header):
        sys.stdout.write(f"── a copy of {label(origin)}\n\n")
    broken, compacted = list(history.partials), list(history.compactions)
    for index, entry in enumerate(history.entries):
        while compacted and compacted[0].at < entry.at:
            _show_compaction(compacted.pop(0))
        while broken and broken[0].before <= index:
            _show_partial(broken.pop(0))
        _show_entry(entry, "──")
    for partial in broken:
        _show_partial(partial)
    for compaction in compacted:
        _show_compaction(compaction)


def _show_compaction(compaction: Compaction) -> None:
    """What requests carry from there on in the place of messages above."""
    sizes = f"{compaction.before:,} → {compaction.after:,} tokens"
    how = f"{compaction.mode}, {compaction.trigger}, {sizes}"
    sys.stdout.write(f"── compacted ({how})  turn {compaction.turn}  {local_time(compaction.at)}\n")
    if compaction.summary is not None:
        sys.stdout.write(visible(compaction.summary.text) + "\n")
    sys.stdout.write("\n")


def _show_page(place: Place, pointer: str, context: int, json: bool) -> None:
    from letta_code.core.codec import dump
    from letta_code.recall.paging import page

    read = page(place.conversations(), pointer, context, context, own(place))
    if json:
        as_json({"conversation": read.conversation, "place": read.place, "messages": dump(read.entries)})
        return
    for index, entry in enumerate(read.entries):
        _show_entry(entry, "─►" if index == read.place else "──")


def _show_entry(entry: Entry, mark: str) -> None:
    from letta_code.core.codec import dump
    from letta_code.core.messages import Image, Text, Thinking, ToolCall, ToolResult

    sys.stdout.write(f"{mark} {entry.message.role}  turn {entry.turn}  {local_time(entry.at)}\n")
    for block in entry.message.blocks[entry.message.reminder :]:
        match block:
            case Text():
                words = block.text
            case Thinking():
                words = f"(thinking) {block.text}"
            case ToolCall():
                words = f"→ {block.name} {dump(block.arguments)}"
            case ToolResult():
                words = f"← {block.status}: {block.text}"
            case Image():
                words = f"[{block.media_type}]"
        sys.stdout.write(visible(words).rstrip("\n") + "\n")
    sys.stdout.write("\n")


def _show_partial(partial: Partial) -> None:
    """What was shown of an answer that broke off."""
    sys.stdout.write(f"── assistant, unfinished  turn {partial.turn}  {local_time(partial.at)}\n")
    if partial.thinking.strip():
        sys.stdout.write(visible(f"(thinking) {partial.thinking}").rstrip("\n") + "\n")
    if partial.text.strip():
        sys.stdout.write(visible(partial.text).rstrip("\n") + "\n")
    sys.stdout.write(f"⋯ broken off here: {label(partial.reason)}; not part of the conversation\n\n")


@app.command()
def fork(
    ctx: typer.Context,
    conversation: Annotated[
        str,
        typer.Argument(
            metavar="ID", autocompletion=complete_conversations, help="Which one; its beginning is enough."
        ),
    ],
) -> None:
    """Copy a conversation, up to its last finished step; also one that is open elsewhere. Prints the id
    of the copy."""
    place: Place = ctx.obj
    found = place.conversations().find(conversation, own(place))
    made = place.conversations().fork(found.key, found.id, place.project)
    made.close()
    for note in made.recovered:
        sys.stderr.write(f"note: {label(note)}\n")
    sys.stdout.write(f"{made.id}\n")
    sys.stderr.write(f"go on with it: letta --conversation {made.id}\n")


@app.command()
def delete(
    ctx: typer.Context,
    conversation: Annotated[
        str,
        typer.Argument(
            metavar="ID", autocompletion=complete_conversations, help="Which one; its beginning is enough."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a conversation. Memory keeps what was learned in it."""
    place: Place = ctx.obj
    refuse_agents(place, "ask the person to do it")
    found = place.conversations().find(conversation)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"this deletes {found.id} ({found.title})", "add --yes to do it")
        typer.confirm(f"Delete {found.id} ({label(found.title)})?", abort=True, err=True)
    place.conversations().delete(found.id)
    sys.stderr.write(f"deleted {found.id}\n")
    if place.paths.recall_index().exists():
        sys.stderr.write("letta index rebuild takes its words out of the search index as well\n")
