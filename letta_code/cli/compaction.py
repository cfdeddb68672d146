"""Compaction from the command line: `letta conversations compact`, `letta agents compaction`, and what a
session needs of both."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.place import Place, complete_agents, complete_conversations
from letta_code.cli.show import as_json, label, table
from letta_code.errors import ConversationError, UsageError

if TYPE_CHECKING:
    from letta_code.agent.compaction.settings import CompactionSettings
    from letta_code.agent.session import Fallback
    from letta_code.agent.state import AgentState
    from letta_code.frontends.signals import Ending
    from letta_code.settings.loading import Settings


def compaction_of(agent: AgentState, say: Callable[[str], None]) -> CompactionSettings:
    """The agent's settings; what is wrong with them is said, and as usual then."""
    from letta_code.agent.compaction.settings import read_settings

    settings, problems = read_settings(agent.compaction)
    for problem in problems:
        say(f"warning: {agent.name}: {problem}; `letta agents compaction` changes it")
    return settings


def summariser_of(place: Place, settings: Settings, chosen: CompactionSettings) -> Fallback | None:
    """The model that writes summaries, when that is not the conversation's own. Opened when it is needed."""
    if not chosen.model:
        return None
    from letta_code.agent.session import Fallback
    from letta_code.models.providers import open_model

    return Fallback(chosen.model, partial(open_model, chosen.model, settings, place.environment))


def compaction_command(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Argument(metavar="[ID|NAME]", autocompletion=complete_agents, help="Which agent.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="sliding_window (default) or all.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", metavar="SHARE", help="Part of the window that may be full; 0.9."),
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option("--keep", metavar="SHARE", help="Part that sliding_window keeps as it is; 0.3."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="PROVIDER/NAME",
            help='Who writes the summary; "": the agent\'s own model.',
        ),
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option("--prompt", metavar="FILE", help="How it is written, in the place of the usual prompt."),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Everything as usual again.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How an agent's conversations are compacted when they no longer fit: shown, or changed."""
    from letta_code.agent.compaction.settings import checked

    place: Place = ctx.obj
    state = place.agent(agent)
    given = {"mode": mode, "threshold": threshold, "keep": keep, "model": model}
    if prompt is not None:
        given["prompt"] = _read(prompt)
    changes = {name: checked(name, value) for name, value in given.items() if value is not None}
    if changes or reset:
        kept = {} if reset else dict(state.compaction)
        state = replace(state, compaction={**kept, **changes})
        place.agents().save(state)
    settings = asdict(compaction_of(state, _say))
    if json:
        as_json(settings)
        return
    table(
        [
            [name, label(str(value or ("the packaged one" if name == "prompt" else "the agent's own")))]
            for name, value in settings.items()
        ]
    )


def _read(path: Path) -> str:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--prompt {path} cannot be read: {error}") from error
    if not text:
        raise UsageError(f"--prompt {path} is empty", "--reset brings the packaged prompt back")
    return text


def compact_command(
    ctx: typer.Context,
    conversation: Annotated[
        str,
        typer.Argument(
            metavar="ID", autocompletion=complete_conversations, help="Which one; its beginning is enough."
        ),
    ],
    instructions: Annotated[
        str, typer.Argument(metavar="[INSTRUCTIONS]", help="What the summary is to pay attention to.")
    ] = "",
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="PROVIDER/NAME", help="For whose window, and who writes it."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Summarise a conversation so far, so that its next requests carry less. The transcript keeps all of it.
    Prints the summary."""
    from letta_code.frontends.signals import Ending

    place: Place = ctx.obj
    found = place.conversations().find(conversation)
    with Ending() as ending:
        return ending.run(_compacted(place, found.id, model, instructions, json, ending))


async def _compacted(
    place: Place, conversation: str, model: str | None, instructions: str, json: bool, ending: Ending
) -> int:
    from letta_code.cli.options import RunOptions
    from letta_code.cli.wiring import Workbench
    from letta_code.core.codec import dump
    from letta_code.frontends.compaction import run_compact

    options = RunOptions(print_mode=True, conversation=conversation, model=model)
    try:
        session = await Workbench(place, options, _say).open()
    except ConversationError as error:
        if "another process" not in error.message:
            raise
        raise ConversationError(error.message, "say /compact there, or close it") from error
    try:
        done = await run_compact(instructions, session, _say)
    finally:
        ending.closing(1)
        await session.close()
    if json:
        as_json({"conversation_id": conversation, "compacted": dump(done)})
    elif done is not None:
        sys.stdout.write(f"{done.summary}\n")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{label(text)}\n")
