"""`letta` and `letta -p`: open the session and hand it to the front end that was asked for."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Literal

from letta_code.cli.options import RunOptions
from letta_code.cli.place import Place
from letta_code.errors import EXIT_FAILED, LettaError, ModelError, UsageError

if TYPE_CHECKING:
    from letta_code.frontends.signals import Ending


def run_prompt(options: RunOptions, place: Place) -> int:
    """Answer once (`-p`) or chat; the result is the exit code.

    Raises:
        LettaError: it could not start. A program that reads JSON has got a result object then.
    """
    if not options.print_mode:
        if options.output_format != "text":
            raise UsageError("--output-format goes with -p", "letta -p …, or leave it out")
        return _chat(options, place)
    try:
        return _one_shot(options, place)
    except LettaError as error:
        if options.output_format != "text":
            sys.stdout.write(json.dumps(failure_object(error)) + "\n")
        raise


def failure_object(error: LettaError) -> dict[str, object]:
    """The result object of a run that could not start; the same keys as any other."""
    return {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "result": "",
        "agent_id": None,
        "conversation_id": None,
        "num_turns": 0,
        "duration_ms": 0,
        "usage": {
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        },
        "total_cost_usd": None,
        "memory_revision": None,
        "error": {
            "kind": error.kind if isinstance(error, ModelError) else "setup",
            "message": error.message,
            "hint": error.hint,
            "retryable": isinstance(error, ModelError) and error.retryable,
        },
    }


def _one_shot(options: RunOptions, place: Place) -> int:
    from letta_code.frontends.signals import Ending
    from letta_code.frontends.stdin import join_prompt

    with Ending() as ending:
        prompt = join_prompt(options.prompt, _say)
        return ending.run(_answered(options, place, prompt, ending))


async def _answered(options: RunOptions, place: Place, prompt: str, ending: Ending) -> int:
    from letta_code.cli.wiring import Workbench
    from letta_code.frontends.oneshot import run_oneshot
    from letta_code.frontends.output import Output, plain_text
    from letta_code.frontends.stream_json import run_stream_json

    session = await Workbench(place, options, _say).open()
    code = EXIT_FAILED
    try:
        if options.output_format == "stream-json":
            code = await run_stream_json(session, prompt, ending, memory_revision=session.memory.head())
        else:
            output_format: Literal["text", "json"] = "json" if options.output_format == "json" else "text"
            code = await run_oneshot(session, prompt, output_format, options.verbose, ending)
        return code
    finally:
        ending.closing(code)
        err = Output(sys.stderr, ending.writable)
        for line in await session.close():
            err.line(plain_text(line))


def _chat(options: RunOptions, place: Place) -> int:
    from letta_code.cli.trust import offer_trust
    from letta_code.frontends.signals import Ending

    if not os.isatty(0):
        raise UsageError("a chat needs a terminal", 'letta -p "…" answers once, and reads piped input')
    offer_trust(place)
    with Ending(interactive=True) as ending:
        return ending.run(_chatted(options, place, ending))


async def _chatted(options: RunOptions, place: Place, ending: Ending) -> int:
    from letta_code.cli.wiring import Workbench
    from letta_code.frontends.repl import run_chat

    bench = Workbench(place, options, _say)
    return await run_chat(bench, await bench.open(), options.prompt, ending)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
