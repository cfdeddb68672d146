"""What the commands of `letta memory` share: whose memory, and who commits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from letta_code.cli.place import Place, complete_agents
from letta_code.cli.show import label
from letta_code.errors import UsageError

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState
    from letta_code.memory.git.repository import Author, MemoryCommit, MemoryRepository, Provenance
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
AllowSecret: TypeAlias = Annotated[
    bool, typer.Option("--allow-secret", help="Commit what looks like a secret all the same.")
]
OverLimit: TypeAlias = Annotated[
    bool, typer.Option("--over-limit", help="Commit a text that is longer than its own limit.")
]


def opened(ctx: typer.Context, agent: str | None) -> tuple[AgentState, MemoryRepository]:
    """The agent that is meant, and its memory. Raises `UsageError` as `whose` does."""
    place: Place = ctx.obj
    state = whose(place, agent)
    return state, place.agents().memory(state)


def whose(place: Place, agent: str | None) -> AgentState:
    """The agent that is meant.

    Raises:
        UsageError: an agent's shell asks for another agent's memory.
    """
    state = place.agent(agent)
    if in_agents_shell(place) and state.id != place.environment.get("LETTA_AGENT_ID"):
        raise UsageError(
            f"an agent's shell has its own memory only, not that of {state.name}", "leave --agent out"
        )
    return state


def person(place: Place, state: AgentState) -> Author:
    """Who commits: the person's Git identity when the environment names one, else "person"; in an agent's
    shell the agent."""
    from letta_code.memory.git.repository import Author

    if in_agents_shell(place):
        return Author(state.name, f"{state.id}@letta.local")
    name = place.environment.get("GIT_AUTHOR_NAME") or place.environment.get("USER") or "person"
    email = place.environment.get("GIT_AUTHOR_EMAIL") or f"person@{state.id}.letta.local"
    return Author(name, email)


def in_agents_shell(place: Place) -> bool:
    """Whether an agent's shell tool runs this, which names the agent."""
    return bool(place.environment.get("LETTA_AGENT_ID"))


def refuse_agents(place: Place, instead: str) -> None:
    """Raises `UsageError` in an agent's shell; `instead` says what to do there."""
    if in_agents_shell(place):
        raise UsageError("this is for a person, not for an agent's shell", instead)


def provenance(place: Place, state: AgentState) -> Provenance:
    """Where a commit of this command line comes from. What an agent commits in its shell is not the
    person's statement."""
    from letta_code.memory.git.repository import Provenance

    if not in_agents_shell(place):
        return Provenance(agent=state.id, source="user-stated")
    conversation = place.environment.get("LETTA_CONVERSATION_ID", "")
    return Provenance(state.id, conversation, source="inferred")


def overrides(place: Place, allow_secret: bool = False, over_limit: bool = False) -> Overrides:
    """The rules that do not hold for who runs this: an agent's own shell names the agent.

    Raises:
        UsageError: a flag that is a person's to give, in an agent's shell.
    """
    from letta_code.memory.rules import AGENT, overrides_in

    waived: Overrides = frozenset()
    if allow_secret:
        waived |= {"secret"}
    if over_limit:
        waived |= {"limit"}
    own = overrides_in(place.environment)
    if own == AGENT and waived:
        flag = "--allow-secret" if allow_secret else "--over-limit"
        raise UsageError(f"{flag} is for a person, not for an agent's shell", "ask the person to do it")
    return own | waived


def tell(commit: MemoryCommit) -> None:
    """One line and the paths of a commit that was made."""
    sys.stdout.write(f"{commit.revision[:10]}  {label(commit.reason.splitlines()[0])}\n")
    for changed in commit.paths:
        sys.stdout.write(f"  {label(changed)}\n")
