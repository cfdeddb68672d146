"""The result of a turn for programs: the result object, the exit code, and the turn driven to its end
without a person."""

from __future__ import annotations

from collections.abc import Callable

from letta_code.core.events import Event, TurnDone
from letta_code.core.messages import JSON
from letta_code.core.tooling import ApprovalRequest, Decision
from letta_code.errors import EXIT_FAILED, EXIT_INTERRUPTED
from letta_code.frontends.host import Session
from letta_code.frontends.signals import Ending

_SUBTYPES = {
    "success": "success",
    "error": "error_during_execution",
    "interrupted": "error_interrupted",
    "max_turns": "error_max_turns",
}


async def refuse(request: ApprovalRequest) -> Decision:
    """The answer where nobody can be asked: no, and what would allow it, for the model to pass on."""
    allow = f"{request.remedy} would allow it. " if request.remedy else "No option would allow it. "
    return Decision(
        "deny",
        f"this run has nobody to ask, so it was refused ({request.reason}). {allow}"
        "Go on another way, or say in the answer what could not be done.",
    )


async def drive(
    session: Session, prompt: str, show: Callable[[Event], bool], ending: Ending
) -> tuple[TurnDone, int]:
    """Run one turn to its end. `show` gets every event; False from it (its reader has gone) cancels."""
    turn = session.turn(prompt, refuse)
    done: TurnDone | None = None
    with ending.cancelling(turn.cancel):
        async for event in turn.events():
            if isinstance(event, TurnDone):
                done = event
            elif not show(event):
                ending.end(EXIT_FAILED)
        if done is None:
            raise RuntimeError("the turn ended without TurnDone")
        return done, exit_code(done) if ending.code is None else ending.code


def exit_code(done: TurnDone) -> int:
    """The exit code that a turn's end stands for."""
    if done.status == "success":
        return 0
    if done.status == "interrupted":
        return EXIT_INTERRUPTED
    return done.error.exit_code if done.error is not None else EXIT_FAILED


def result_object(session: Session, done: TurnDone) -> dict[str, JSON]:
    """The last line of stream-json and the whole of json; docs/stream-json.md describes it."""
    failed = done.status != "success"
    result: dict[str, JSON] = {
        "type": "result",
        "subtype": _SUBTYPES[done.status],
        "is_error": failed,
        "result": done.text,
        "agent_id": session.agent.key.agent,
        "conversation_id": session.conversation.id,
        "num_turns": done.steps,
        "duration_ms": round(done.seconds * 1000),
        "usage": {
            "input_tokens": done.usage.input,
            "output_tokens": done.usage.output,
            "cache_read_input_tokens": done.usage.cache_read,
            "cache_creation_input_tokens": done.usage.cache_write,
        },
        "total_cost_usd": done.cost_usd,
        "memory_revision": done.memory_revision,
    }
    if done.partial:
        result["partial"] = done.partial
    if failed:
        error = done.error
        result["error"] = {
            "kind": error.kind if error else done.status,
            "message": failure_text(done),
            "hint": error.hint if error else "",
            "retryable": error.retryable if error else False,
        }
    return result


def failure_text(done: TurnDone) -> str:
    """Why the turn did not succeed, in one line."""
    if done.error is not None:
        return done.error.message
    return "interrupted" if done.status == "interrupted" else f"stopped after {done.steps} model requests"
