"""`letta context`: what fills the model's window; and the compiled prompt byte for byte, as the model saw it
or will see it, with its key."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from letta_code.cli.place import Place, complete_agents, complete_conversations
from letta_code.cli.show import as_json, label
from letta_code.cli.sizes import budget_window, memory_data, model_of, project_line
from letta_code.errors import ConversationError, SystemPromptOverflow, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from letta_code.agent.counting import Counter
    from letta_code.agent.projects import Project
    from letta_code.agent.session import Session
    from letta_code.agent.state import AgentState
    from letta_code.agent.window import Filled
    from letta_code.conversations.history import History
    from letta_code.core.messages import PromptKey
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.snapshot import MemorySnapshot
    from letta_code.models.base import ModelInfo, ModelRequest


def context_command(
    ctx: typer.Context,
    prompt: Annotated[
        bool,
        typer.Option("--prompt", help="Print the system prompt of the next request byte for byte instead."),
    ] = False,
    turn: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Print the system prompt that turn N was sent, byte for byte."),
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
        bool, typer.Option("--json", help="Print JSON: the window, key, prompt, updates, skills, memory.")
    ] = False,
) -> None:
    """What fills the model's window with the next request: prompt, memory, tools, messages.

    With --prompt or --turn the system prompt goes to standard output byte for byte; its key, the memory
    updates sent after it and the skills go to standard error.
    """
    place: Place = ctx.obj
    state, history = _found(place, conversation, agent, turn)
    if turn is not None:
        key, updates = _of_turn(history, turn)
        repository = place.agents().memory(state)
        text = _compiled(place, state, repository, key)
        skills = history.extra if history is not None else ""
        if json:
            as_json({"agent_id": state.id, **_prompt_data(key, text, updates, skills)})
        else:
            _print_prompt(key, text, updates, skills)
        return
    carried = _next(place, state, history)
    system, skills = carried.request.system[0], "".join(carried.request.system[1:])
    updates = [message.text for message in carried.request.messages if message.role == "system"]
    if json:
        as_json(
            {
                "agent_id": state.id,
                **_prompt_data(carried.key, system, updates, skills),
                **_window_data(carried),
            }
        )
    elif prompt:
        _print_prompt(carried.key, system, updates, skills)
    else:
        from rich.console import Console

        Console(highlight=False, markup=False).print(_view(carried), end="")


def describe(session: Session) -> RenderableType:
    """What fills the window of an open session's model."""
    from letta_code.agent.prompting import next_request

    history, info = session.conversation.history, session.model.info
    prepared, request = next_request(session, info)
    notes = session.reminder.memory
    return _view(
        _Carried(
            prepared.key,
            request,
            info,
            session.counter,
            session.prompts.base,
            session.memory.snapshot(prepared.key.revision),
            None if notes is None else notes.project,
            0.0 if notes is None else notes.share,
            history,
        )
    )


def overflow_warning(place: Place, state: AgentState) -> SystemPromptOverflow | None:
    """Why a new conversation of the agent cannot begin: its system prompt fills the window."""
    return _overflow(_next(place, state, None))


@dataclass(frozen=True, slots=True)
class _Carried:
    """The next request, and what its parts are told apart by."""

    key: PromptKey
    request: ModelRequest
    info: ModelInfo
    counter: Counter
    base: str
    snapshot: MemorySnapshot
    project: Project | None
    share: float
    history: History | None

    def filled(self) -> Filled:
        """The window with it."""
        from letta_code.agent.window import filled

        summaries = [] if self.history is None else [item.summary for item in self.history.compactions]
        known = [message for message in summaries if message is not None]
        asked = self.request, self.counter, self.info, self.base, self.snapshot
        return filled(*asked, known, tokenizer=True)


def _view(carried: _Carried) -> RenderableType:
    from letta_code.cli.window import WindowView
    from letta_code.memory.budget import measure, pressure

    budget = measure(carried.snapshot)
    notes = {
        ("core memory", file.path): f"{file.characters:,} of {file.limit:,} characters"
        for file in budget.files
        if file.limit is not None
    }
    key = carried.key
    lines = [
        f"this project   {project_line(carried.snapshot, carried.project)}",
        f"prompt key     base {key.base[:12]}, memory {key.revision[:12]}, seen {key.seen[:12]}",
        *(f"warning: {label(line)}" for line in pressure(budget, budget_window(carried.info), carried.share)),
    ]
    if (error := _overflow(carried)) is not None:
        lines += [f"warning: {label(error.message)}", f"warning: {label(error.hint)}"]
    return WindowView(carried.filled(), notes, lines, assumed=not carried.info.known)


def _window_data(carried: _Carried) -> dict[str, Any]:
    from letta_code.cli.window import window_data
    from letta_code.memory.budget import measure

    error = _overflow(carried)
    sizes = carried.snapshot, measure(carried.snapshot), carried.project
    return {
        "window": window_data(carried.filled(), assumed=not carried.info.known)
        | {"overflow": None if error is None else error.message},
        "memory": memory_data(*sizes, budget_window(carried.info), carried.share),
    }


def _overflow(carried: _Carried) -> SystemPromptOverflow | None:
    from letta_code.agent.window import check_fixed

    try:
        check_fixed(carried.request, carried.counter, carried.info, carried.base, lambda: carried.snapshot)
    except SystemPromptOverflow as error:
        return error
    return None


def _prompt_data(key: PromptKey, text: str, updates: list[str], skills: str) -> dict[str, Any]:
    return {
        "key": {"base": key.base, "revision": key.revision, "seen": key.seen},
        "prompt": text,
        "updates": updates,
        "skills": skills,
    }


def _print_prompt(key: PromptKey, text: str, updates: list[str], skills: str) -> None:
    sys.stderr.write(f"base {key.base[:12]}  revision {key.revision[:12]}  seen {key.seen[:12]}\n")
    sys.stderr.write(f"{len(updates)} memory updates sent inside the conversation\n")
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()
    for update in updates:
        sys.stderr.write(f"\n{update}\n")
    if skills:
        sys.stderr.write(f"\n{skills}\n")


# Finding it -------------------------------------------------------------------------------------------


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


def _compiled(place: Place, state: AgentState, repository: MemoryRepository, key: PromptKey) -> str:
    from letta_code.memory.prompt import PromptCache

    base = place.agents().base_prompt_by_hash(state.key, key.base)
    return PromptCache(place.paths.compiled_prompts()).get(base, repository, key.revision).text


def _next(place: Place, state: AgentState, history: History | None) -> _Carried:
    from letta_code.agent.counting import Counter
    from letta_code.agent.projects import ProjectRegister, project_of
    from letta_code.agent.prompting import Prompts, requested
    from letta_code.agent.skills import available_skills
    from letta_code.cli.options import RunOptions
    from letta_code.cli.wiring import Workbench
    from letta_code.conversations.history import History
    from letta_code.memory.prompt import PromptCache
    from letta_code.models.base import ModelRequest

    repository, base = place.agents().memory(state), place.agents().base_prompt(state)
    info = model_of(place, state, history)
    prompts = Prompts(PromptCache(place.paths.compiled_prompts()), repository, base)
    project = project_of(place.project, ProjectRegister(place.paths), remember=False)
    skills = available_skills(place.paths, place.project, repository.snapshot())
    specs = Workbench(place, RunOptions(), lambda line: None).specs(state, repository, project, info.handle)
    bare = ModelRequest((skills,) if skills else (), (), specs, "")
    counter = Counter()
    if history is not None:
        counter.resume(history)
    prepared, request = requested(prompts, history or History(), bare, info, counter)
    return _Carried(
        prepared.key,
        request,
        info,
        counter,
        base,
        repository.snapshot(prepared.key.revision),
        project,
        place.settings().memory.budget,
        history,
    )
