"""`letta context`: the compiled prompt byte for byte as the model saw it or will see it, with its key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.place import Place, complete_agents, complete_conversations
from letta_code.cli.show import as_json
from letta_code.cli.sizes import memory_data, memory_lines, window_of
from letta_code.core.tokens import estimated_tokens
from letta_code.errors import ConversationError, UsageError

if TYPE_CHECKING:
    from letta_code.agent.session import Session
    from letta_code.agent.state import AgentState
    from letta_code.conversations.history import History
    from letta_code.core.messages import PromptKey


def context_command(
    ctx: typer.Context,
    turn: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="What turn N was sent. Without it: what the next request will be."
        ),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            autocompletion=complete_conversations,
            help="Which conversation. Without it: the one this folder used last.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", "-a", metavar="ID|NAME", autocompletion=complete_agents, help="Whose prompt."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON: key, prompt, updates, skills, sizes.")
    ] = False,
) -> None:
    """The compiled prompt as the model sees it, with its key.

    The prompt goes to standard output byte for byte; key, memory updates and size go to standard error.
    """
    from letta_code.agent.projects import ProjectRegister, project_of
    from letta_code.memory.budget import measure
    from letta_code.memory.prompt import PromptCache

    place: Place = ctx.obj
    state, history = _found(place, conversation, agent, turn)
    key, updates = _of_turn(history, turn) if turn is not None else _next(place, state, history)
    base = place.agents().base_prompt_by_hash(state.key, key.base)
    cache = PromptCache(place.paths.compiled_prompts())
    repository = place.agents().memory(state)
    text = cache.get(base, repository, key.revision).text
    skills = history.extra if history is not None else ""
    tokens = estimated_tokens(text)
    snapshot = repository.snapshot(key.revision)
    project = project_of(place.project, ProjectRegister(place.paths), remember=False)
    last = history.steps[-1].sent.chosen if history is not None and history.steps else ""
    size = snapshot, measure(snapshot), project, window_of(place, state, last), place.settings().memory.budget
    if json:
        as_json(
            {
                "agent_id": state.id,
                "key": {"base": key.base, "revision": key.revision, "seen": key.seen},
                "prompt": text,
                "updates": updates,
                "skills": skills,
                "estimated_tokens": tokens,
                "memory": memory_data(*size),
            }
        )
        return
    sys.stderr.write(f"base {key.base[:12]}  revision {key.revision[:12]}  seen {key.seen[:12]}\n")
    sys.stderr.write(f"about {tokens:,} tokens; {len(updates)} memory updates sent inside the conversation\n")
    sys.stderr.write("".join(f"{line}\n" for line in memory_lines(*size)))
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()
    for update in updates:
        sys.stderr.write(f"\n{update}\n")
    if skills:
        sys.stderr.write(f"\n{skills}\n")


def describe(session: Session) -> str:
    """What the next request of an open session would carry, in a few lines."""
    from letta_code.agent.prompting import visible_messages
    from letta_code.core.codec import to_line

    history, info = session.conversation.history, session.model.info
    prepared = session.prompts.prepare(
        history.last_prompt, info.system_messages, compacted=history.compacted
    )
    messages = visible_messages(history, prepared.key)
    parts = {
        "system prompt": estimated_tokens(prepared.system),
        "tools": sum(estimated_tokens(to_line(spec)) for spec in session.toolbox.specs()),
        "messages": sum(estimated_tokens(to_line(message)) for message in messages),
    }
    lines = [f"{name:14} about {size:,} tokens" for name, size in parts.items()]
    lines.append(f"{'window':14} {info.window:,} tokens ({info.handle})")
    key = prepared.key
    lines.append(f"prompt key     base {key.base[:12]}, memory {key.revision[:12]}, seen {key.seen[:12]}")
    if (notes := session.reminder.memory) is not None:
        snapshot = session.memory.snapshot(key.revision)
        size = snapshot, notes.budget(snapshot), notes.project, info.window, notes.share
        lines += memory_lines(*size)
    return "\n".join(lines)


def _found(
    place: Place, conversation: str | None, agent: str | None, turn: int | None
) -> tuple[AgentState, History | None]:
    store = place.conversations()
    if conversation:
        found = store.find(conversation)
        return place.agents().load(found.key), store.read(found.id, found.key)
    state = place.agent(agent)
    use = place.projects().last(place.project)
    if use is not None and use.agent == state.key and use.conversation:
        return state, store.read(use.conversation, state.key)
    known = store.list(state.key)
    if known:
        return state, store.read(known[0].id, state.key)
    if turn is not None:
        raise ConversationError(f"{state.name} has no conversation yet", "leave --turn out")
    return state, None


def _of_turn(history: History | None, turn: int) -> tuple[PromptKey, list[str]]:
    """Key and updates of the last committed step of a turn."""
    steps = [] if history is None else [step for step in history.steps if step.turn == turn]
    if not steps:
        last = max((step.turn for step in history.steps), default=0) if history is not None else 0
        raise UsageError(f"turn {turn} has no answer in this conversation", f"the last one is turn {last}")
    key = steps[-1].sent.prompt
    assert history is not None
    before = history.steps_until(steps[-1])
    return key, [
        step.sent.update.message.text
        for step in before
        if step.sent.update is not None
        and (step.sent.prompt.base, step.sent.prompt.revision) == (key.base, key.revision)
    ]


def _next(place: Place, state: AgentState, history: History | None) -> tuple[PromptKey, list[str]]:
    from letta_code.agent.prompting import Prompts, visible_messages
    from letta_code.memory.prompt import PromptCache
    from letta_code.models.catalog import model_info

    repository = place.agents().memory(state)
    last = history.last_prompt if history is not None else None
    system_messages = False
    if history is not None and history.steps:
        provider, _, name = history.steps[-1].sent.chosen.partition("/")
        system_messages = model_info(provider, name).system_messages
    cache = PromptCache(place.paths.compiled_prompts())
    prompts = Prompts(cache, repository, place.agents().base_prompt(state))
    compacted = history is not None and history.compacted
    prepared = prompts.prepare(last, system_messages, compacted=compacted)
    sent = [] if history is None else [*visible_messages(history, prepared.key)]
    updates = [message.text for message in sent if message.role == "system"]
    return prepared.key, updates + ([prepared.update.text] if prepared.update is not None else [])
