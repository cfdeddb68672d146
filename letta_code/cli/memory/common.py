"""What the commands of `letta memory` share: whose memory, and who commits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from letta_code.cli.place import Place, complete_agents
from letta_code.cli.show import label

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState
    from letta_code.memory.repository import Author, MemoryCommit, MemoryRepository
    from letta_code.memory.rules import Overrides

Agent: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--agent",
        "-a",
        metavar="ID|NAME",
        autocompletion=complete_agents,
        help="Whose memory. Without it: the agent this folder used last, else the default one.",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def opened(ctx: typer.Context, agent: str | None) -> tuple[AgentState, MemoryRepository]:
    """The agent that is meant, and its memory."""
    place: Place = ctx.obj
    state = place.agent(agent)
    return state, place.agents().memory(state)


def person(place: Place, state: AgentState) -> Author:
    """Who commits: the person's Git identity when the environment names one, else "you"."""
    from letta_code.memory.repository import Author

    name = place.environment.get("GIT_AUTHOR_NAME") or place.environment.get("USER") or "person"
    email = place.environment.get("GIT_AUTHOR_EMAIL") or f"person@{state.id}.letta.local"
    return Author(name, email)


def overrides(place: Place) -> Overrides:
    """The rules that do not hold for who runs this: an agent's own shell names the agent."""
    from letta_code.memory.rules import AGENT, PERSON

    return AGENT if place.environment.get("LETTA_AGENT_ID") else PERSON


def tell(commit: MemoryCommit) -> None:
    """One line and the paths of a commit that was made."""
    sys.stdout.write(f"{commit.revision[:10]}  {label(commit.reason.splitlines()[0])}\n")
    for changed in commit.paths:
        sys.stdout.write(f"  {label(changed)}\n")
