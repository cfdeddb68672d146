"""`letta agents`: make, list, show, repair and delete agents."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.compaction import compaction_command
from letta_code.cli.memory.common import refuse_agents
from letta_code.cli.place import Place, complete_agents
from letta_code.cli.show import as_json, label, local_time, table
from letta_code.core.ids import DEFAULT_ORG, checked_id
from letta_code.errors import MemoryStoreError, UsageError

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState

app = typer.Typer(
    help="List, create, show, change, repair and delete agents.", no_args_is_help=True, rich_markup_mode=None
)
app.command("compaction")(compaction_command)


@app.command("list")
def list_agents(
    ctx: typer.Context, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """All agents, the oldest first. A star marks the one that this folder uses."""
    place: Place = ctx.obj
    agents, problems = place.agents().list_with_problems()
    last = place.projects().last(place.project)
    for problem in problems:
        sys.stderr.write(f"letta: {label(problem)}\n")
    if json:
        as_json([_plain(place, state) for state in agents])
        return
    table(
        [
            [
                "*" if last is not None and last.agent == state.key else " ",
                label(state.name),
                state.id,
                label(state.model or "-"),
                local_time(state.created_at),
            ]
            for state in agents
        ]
    )


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Its name, which no other agent has.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="PROVIDER/NAME", help="The model it uses.")
    ] = None,
    block: Annotated[
        list[str] | None,
        typer.Option(
            "--block",
            metavar="LABEL=TEXT",
            help="A memory block, such as persona='You are terse.' (a label without a folder is in system/). "
            "May be repeated.",
        ),
    ] = None,
    org: Annotated[
        str, typer.Option("--org", metavar="ORG", help="The organisation it belongs to.", show_default=False)
    ] = DEFAULT_ORG,
) -> None:
    """Create an agent with fresh memory. Prints its id."""
    from letta_code.cli.wiring import packaged_base_prompt
    from letta_code.memory.blocks import new_block
    from letta_code.memory.seed import default_files

    place: Place = ctx.obj
    files = dict(default_files())
    for given in block or ():
        path, text = _block(given)
        files[path] = new_block(path, _description(files.get(path), path), text + "\n").decode("utf-8")
    state = place.agents().create(
        name, packaged_base_prompt(), files, model=model, org=checked_id(org, "org")
    )
    sys.stdout.write(f"{state.id}\n")
    sys.stderr.write(f"memory: {place.paths.memory_worktree(state.key)}\n")


@app.command()
def show(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Argument(metavar="[ID|NAME]", autocompletion=complete_agents, help="Which agent.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """One agent: what it is made of and where its memory is."""
    place: Place = ctx.obj
    state = place.agent(agent)
    plain = _plain(place, state)
    try:
        repository = place.agents().memory(state)
        plain["memory_revision"] = repository.head()
        plain["drafts"] = len(repository.status())
    except MemoryStoreError as error:
        plain["memory_problem"] = error.message
    if json:
        as_json(plain)
        return
    table([[key, label(_words(value))] for key, value in plain.items() if value not in (None, "", [], {})])


@app.command()
def repair(
    ctx: typer.Context,
    agent: Annotated[
        str, typer.Argument(metavar="ID", help="Which agent, by its id; the beginning of it is enough.")
    ],
) -> None:
    """Make an agent anew from its memory when its own files are damaged or lost. Damaged files are kept
    beside the new ones; settings of the agent that only they held are the usual ones again."""
    from letta_code.agent.repair import repair as repaired
    from letta_code.cli.wiring import packaged_base_prompt

    place: Place = ctx.obj
    state, done = repaired(place.paths, agent, packaged_base_prompt())
    for line in done or (f"nothing of {state.name} is damaged",):
        sys.stderr.write(f"{label(line)}\n")
    sys.stdout.write(f"{state.id}\n")


@app.command()
def delete(
    ctx: typer.Context,
    agent: Annotated[
        str, typer.Argument(metavar="ID|NAME", autocompletion=complete_agents, help="Which agent.")
    ],
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete its memory as well. There is no way back.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete an agent, its conversations and its archive. Its memory is kept unless --purge is given."""
    from letta_code.archive.store import SqliteArchive

    place: Place = ctx.obj
    refuse_agents(place, "ask the person to do it")
    state = place.agents().find(agent)
    passages = SqliteArchive(place.paths.archive()).counts(state.key).passages
    archive = f", its archive ({passages} passages)" if passages else ""
    what = f"its conversations{archive}{' and its memory' if purge else ''}"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"this deletes {state.name} and {what}", "add --yes to do it")
        typer.confirm(f"Delete {label(state.name)} ({state.id}), {what}?", abort=True, err=True)
    memory = place.agents().delete(state.key, purge=purge)
    kept = "" if purge else f"; its memory is kept in {memory}"
    sys.stderr.write(f"deleted {label(state.name)}{kept}\n")


def _block(given: str) -> tuple[str, str]:
    name, sign, text = given.partition("=")
    name = name.strip().removesuffix(".md")
    if not sign or not name:
        raise UsageError(f"--block {given!r} is not LABEL=TEXT", "for example --block human='Likes tea.'")
    return (f"{name}.md" if "/" in name else f"system/{name}.md"), text


def _description(existing: str | None, path: str) -> str:
    """The description that the default block of this path has, else its label."""
    if existing is None:
        return f"{path.removesuffix('.md').rsplit('/', 1)[-1]} (written when the agent was created)"
    from letta_code.memory.blocks import parse_block

    return parse_block(path, existing.encode("utf-8")).description


def _plain(place: Place, state: AgentState) -> dict[str, object]:
    return {
        "id": state.id,
        "name": state.name,
        "org": state.org,
        "model": state.model,
        "description": state.description,
        "created_at": state.created_at,
        "base_prompt": state.base_prompt,
        "blocks": list(state.block_labels),
        "tags": list(state.tags),
        "memory": str(place.paths.memory_worktree(state.key)),
    }


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
