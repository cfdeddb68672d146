"""`--output-format stream-json`: every event of a turn as one line of JSON (docs/stream-json.md)."""

from __future__ import annotations

import json
import sys

from letta_code import __version__
from letta_code.core.codec import to_line
from letta_code.core.events import Event
from letta_code.core.messages import JSON
from letta_code.frontends.host import Session
from letta_code.frontends.oneshot import report_failure
from letta_code.frontends.output import Output, prepare_streams
from letta_code.frontends.result import drive, result_object
from letta_code.frontends.signals import Ending


def init_object(session: Session, memory_revision: str) -> dict[str, JSON]:
    """The first line: who answers, with what, where."""
    return {
        "type": "system",
        "subtype": "init",
        "agent_id": session.agent.key.agent,
        "agent_name": session.agent.name,
        "conversation_id": session.conversation.id,
        "model": session.model.info.handle,
        "tools": [spec.name for spec in session.toolbox.specs()],
        "cwd": str(session.workspace.project),
        "permission_mode": session.policy.mode,
        "memory_revision": memory_revision,
        "version": __version__,
    }


async def run_stream_json(session: Session, prompt: str, ending: Ending, *, memory_revision: str = "") -> int:
    """Answer `prompt` once, as lines; returns the exit code. `memory_revision` is memory's HEAD now.

    When the reader goes away the turn is cancelled: nobody is there for what it would cost.
    """
    prepare_streams()
    out = Output(sys.stdout, ending.writable)
    out.line(json.dumps(init_object(session, memory_revision)))
    return await stream_turn(session, prompt, out, ending)


async def stream_turn(session: Session, prompt: str, out: Output, ending: Ending) -> int:
    """The lines of one turn: its events, then the result object."""

    def show(event: Event) -> bool:
        out.line(to_line(event))
        return not out.closed

    done, code = await drive(session, prompt, show, ending)
    out.line(to_line(done))
    out.line(json.dumps(result_object(session, done)))
    if not out.closed:
        report_failure(done, Output(sys.stderr, ending.writable))
    return code
