"""`letta -p`: one turn, the answer on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import Literal

from letta_code.core.events import (
    ApprovalGiven,
    Compacted,
    Event,
    FallbackUsed,
    Notice,
    PromptReady,
    Retrying,
    ToolDone,
    ToolRunning,
    TurnDone,
)
from letta_code.core.text import one_line
from letta_code.frontends.compaction import compacted_line
from letta_code.frontends.host import Session
from letta_code.frontends.output import Output, plain_text, prepare_streams
from letta_code.frontends.result import drive, failure_text, result_object
from letta_code.frontends.signals import Ending


async def run_oneshot(
    session: Session, prompt: str, output_format: Literal["text", "json"], verbose: bool, ending: Ending
) -> int:
    """Answer `prompt` once; returns the exit code (0, 1, 75, 130, 143, or 129 after a hang-up).

    The session stays open; whoever opened it closes it, which stops background commands.
    """
    prepare_streams()
    out, err = Output(sys.stdout, ending.writable), Output(sys.stderr, ending.writable)
    tell = verbose or sys.stderr.isatty()
    told: set[str] = set()

    def show(event: Event) -> bool:
        if isinstance(event, PromptReady):
            for problem in event.problems:
                if problem not in told:
                    told.add(problem)
                    err.line(f"warning: memory: {plain_text(one_line(problem))}")
        line = progress_line(event) if tell or _always(event) else None
        if line is not None:
            err.line(line)
        return True

    done, code = await drive(session, prompt, show, ending)
    if output_format == "json":
        out.line(json.dumps(result_object(session, done)))
    elif done.text and done.status == "success":
        text = done.text.rstrip("\n")
        out.line(plain_text(text) if sys.stdout.isatty() else text)
    report_failure(done, err)
    return code


def progress_line(event: Event) -> str | None:
    """What stderr says of an event, or None."""
    match event:
        case ToolRunning(title=title):
            return f"· {plain_text(one_line(title))}"
        case ToolDone(name=name, output=output) if output.status != "ok":
            first = output.content[0]
            words = first.text if first.type == "text" else ""
            return f"  {name}: {output.status}: {plain_text(one_line(words, 200))}"
        case ApprovalGiven(decision=decision) if decision.choice == "deny":
            return f"  refused: {plain_text(one_line(decision.feedback, 300))}"
        case Retrying(attempt=attempt, wait=wait, reason=reason):
            return f"retry {attempt} in {wait:.0f} s: {plain_text(one_line(reason, 300))}"
        case FallbackUsed(model=model, instead_of=main, reason=reason):
            why = plain_text(one_line(reason, 300))
            return f"warning: {main} stays out of reach ({why}); {model} goes on"
        case Compacted():
            return f"· {compacted_line(event)}"
        case Notice(level=level, text=text):
            return f"{level}: {plain_text(text)}"
        case _:
            return None


def _always(event: Event) -> bool:
    return isinstance(event, FallbackUsed) or (isinstance(event, Notice) and event.level == "warning")


def report_failure(done: TurnDone, err: Output) -> None:
    """Say on stderr why the turn failed and what helps."""
    if done.status == "success":
        return
    err.line(f"letta: {plain_text(failure_text(done))}")
    hint = done.error.hint if done.error is not None else ""
    if done.status == "max_turns" and not hint:
        hint = "raise --max-turns, or go on with letta -c"
    if hint:
        err.line(f"  {plain_text(hint)}")
