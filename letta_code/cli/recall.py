"""`letta conversations search` and `letta index`: stored messages found by their words."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.memory.common import in_agents_shell, refuse_agents, whose
from letta_code.cli.pager import NoPager, Page
from letta_code.cli.place import Place, complete_agents, complete_conversations
from letta_code.cli.show import as_json, label, local_time
from letta_code.core.text import one_line
from letta_code.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from letta_code.conversations.history import Entry
    from letta_code.core.ids import AgentKey
    from letta_code.paths import Paths
    from letta_code.recall.recall import Recall
    from letta_code.recall.search import Found, Hit, Wanted
    from letta_code.recall.words import Role

index_app = typer.Typer(
    help="The index that makes conversations searchable.", no_args_is_help=True, rich_markup_mode=None
)


def search_command(
    ctx: typer.Context,
    query: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY...",
            help='Words that must all be there, "a phrase", beg* for words that begin so. '
            "Without any: the newest messages.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", "-a", metavar="ID|NAME", autocompletion=complete_agents, help="Only this agent's."
        ),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="ID", autocompletion=complete_conversations, help="Only in this conversation."
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", "-r", metavar="user|assistant|tool", help="Only these. May be repeated."),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Then or later: a date, or a date and time.")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Before then; a date includes that day.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 10,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, max=20, help="Messages around each, as well.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    no_pager: NoPager = False,
) -> None:
    """Messages of all conversations that fit, the best first. `letta conversations show POINTER` reads on."""
    from letta_code.core.query import parse
    from letta_code.recall.search import Wanted

    place: Place = ctx.obj
    key = whose(place, agent).key if agent or in_agents_shell(place) else None
    wanted = Wanted(
        parse(" ".join(query or ())),
        _roles(role or ()),
        key,
        place.conversations().find(conversation, key).id if conversation else "",
        _time(since, end=False),
        _time(until, end=True),
        limit,
        context,
        context,
    )
    found = searched(place, wanted)
    if json:
        as_json({"total": found.total, "more": found.more, "hits": [_plain(hit) for hit in found.hits]})
        return
    page = Page(place.environment)
    names = {state.key: state.name for state in place.agents().list()}
    for hit in found.hits:
        _write(page, hit, names if key is None else {})
    page.show(no_pager)
    sys.stderr.write(f"{summary(found)}\n")


def searched(place: Place, wanted: Wanted) -> Found:
    """What fits. What there is to say goes to stderr."""
    with _recall(place) as recall:
        return recall.search(wanted)


@contextmanager
def _recall(place: Place) -> Iterator[Recall]:
    """Recall for one command: notes and, on a terminal, progress go to stderr."""
    from letta_code.recall.recall import Recall

    terminal = sys.stderr.isatty()

    def progress(count: int) -> None:
        if terminal:
            sys.stderr.write(f"\rindexing: {count:,} messages\x1b[K")

    def say(line: str) -> None:
        sys.stderr.write(f"note: {line}\n")

    try:
        yield Recall(place.paths, say, progress)
    finally:
        if terminal:
            sys.stderr.write("\r\x1b[K")


def chat_lines(paths: Paths, key: AgentKey, query: str) -> list[Text]:
    """What `/search` shows of an agent's messages."""
    from rich.text import Text

    from letta_code.core.query import parse
    from letta_code.recall.paging import shortened
    from letta_code.recall.recall import Recall
    from letta_code.recall.search import Wanted

    notes: list[str] = []
    found = Recall(paths, notes.append).search(Wanted(parse(query), agent=key))
    lines = [Text(note, "dim") for note in notes]
    for hit in found.hits:
        facts = f"{local_time(hit.entry.at)}  {hit.entry.message.role}  {label(shortened(hit.pointer))}"
        shown = Text("  … " if hit.snippet.cut_before else "  ")
        for number, piece in enumerate(hit.snippet.pieces):
            shown.append(label(piece), "yellow" if number % 2 else "")
        lines += [Text(facts, "dim"), shown.append(" …" if hit.snippet.cut_after else "")]
    end = "; letta conversations show POINTER reads on" if found.hits else ""
    return [*lines, Text(f"{summary(found)}{end}", "dim")]


def summary(found: Found) -> str:
    """How much was found, on one line."""
    whole = sum(hit.whole for hit in found.hits)
    if not found.hits:
        return "nothing found"
    if found.total == 0:
        return f"no message has all of that; {len(found.hits)} have some of it"
    some = f", and {len(found.hits) - whole} that have some of it" if whole < len(found.hits) else ""
    messages = "message" if found.total == 1 else "messages"
    return f"{whole} of {found.total:,}{' or more' if found.more else ''} {messages}{some}"


@index_app.command()
def status(
    ctx: typer.Context, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """What the index holds, and whether it is behind."""
    place: Place = ctx.obj
    with _recall(place) as recall:
        held = recall.status()
    if json:
        as_json(
            {
                "path": str(place.paths.recall_index()),
                "conversations": held.conversations,
                "messages": held.messages,
                "left": held.left,
                "behind": held.behind,
                "bytes": held.bytes,
            }
        )
        return
    behind = f"; {held.behind} changed since, and are read at the next search" if held.behind else ""
    left = f"; words of {held.left:,} messages that left, until a rebuild" if held.left else ""
    sys.stdout.write(f"{held.messages:,} messages of {held.conversations:,} conversations{behind}{left}\n")
    sys.stdout.write(f"{held.bytes / 1e6:,.1f} MB  {label(str(place.paths.recall_index()))}\n")


@index_app.command()
def rebuild(ctx: typer.Context) -> None:
    """Make the index anew from the transcripts."""
    place: Place = ctx.obj
    refuse_agents(place, "it is brought up to date at each search")
    with _recall(place) as recall:
        count = recall.rebuild()
    sys.stderr.write(f"{count:,} messages are indexed\n")


def own(place: Place) -> AgentKey | None:
    """Whose conversations a command may see: in an agent's shell its own, else (None) everybody's."""
    return whose(place, None).key if in_agents_shell(place) else None


def _roles(names: Sequence[str]) -> tuple[Role, ...]:
    from letta_code.recall.words import ROLES

    for name in names:
        if name not in ROLES:
            raise UsageError(f"no such role: {name}", f"one of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if not names or role in names)


def _time(text: str, *, end: bool) -> int | None:
    from letta_code.core.times import moment

    if not text:
        return None
    try:
        return int(moment(text, end=end).timestamp() * 1000)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _write(page: Page, hit: Hit, names: dict[AgentKey, str]) -> None:
    facts = [local_time(hit.entry.at), hit.entry.message.role, names.get(hit.agent, "")]
    page.write("  ".join(label(fact) for fact in facts if fact))
    page.write(f"  {page.paint(label(hit.pointer), 'dim')}\n")
    for entry in hit.before:
        page.write(f"    {_neighbour(entry)}\n")
    pieces = [label(piece) for piece in hit.snippet.pieces]
    shown = "".join(page.paint(piece, "yellow") if n % 2 else piece for n, piece in enumerate(pieces))
    page.write(f"  {'… ' if hit.snippet.cut_before else ''}{shown}{' …' if hit.snippet.cut_after else ''}\n")
    for entry in hit.after:
        page.write(f"    {_neighbour(entry)}\n")
    page.write("\n")


def _neighbour(entry: Entry) -> str:
    from letta_code.recall.words import readable

    return label(f"{entry.message.role}: {one_line(readable(entry.message), 200)}")


def _plain(hit: Hit) -> dict[str, object]:
    from letta_code.recall.words import readable

    def message(entry: Entry) -> dict[str, object]:
        return {
            "id": entry.id,
            "at": entry.at,
            "turn": entry.turn,
            "role": entry.message.role,
            "text": readable(entry.message),
        }

    return {
        "pointer": hit.pointer,
        "agent_id": hit.agent.agent,
        "conversation_id": hit.conversation,
        "whole": hit.whole,
        "snippet": hit.snippet.marked("**", "**"),
        **message(hit.entry),
        "before": [message(entry) for entry in hit.before],
        "after": [message(entry) for entry in hit.after],
    }
