#!/usr/bin/env python3
"""Runs the scripted model server for people: a model without a network, that does what a script says.

    scripts/model_server.py [--port N] [--host ADDRESS] [--log FILE] [--loop] [--loose] [SCRIPT.yaml]

Without a script it is an assistant that repeats what it is told. How scripts are written:
tests/model_server/README.md. A whole task to play: tests/scripts/dozen_turns.yaml, in a copy of
tests/scripts/calculator.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.model_server import ModelServer, Request

HELP = """{url} plays {what}. Ctrl-C ends it. In another terminal:

  Anthropic Messages       ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=x letta -m anthropic/claude-sonnet-5-5
  OpenAI Responses         OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=x letta -m openai/gpt-6.2-sol
  OpenAI Chat Completions  letta -m local/scripted --base-url {url}/v1
"""


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM."""
    options = _options(arguments)
    try:
        server = ModelServer(
            options.script or [{"echo": True, "repeat": True}],
            strict=not options.loose,
            loop=options.loop,
            host=options.host,
            port=options.port,
        )
    except (OSError, ValueError) as error:
        print(f"{options.script}: {error}", file=sys.stderr)
        return 2
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as stack:
        log = stack.enter_context(options.log.open("a", encoding="utf-8")) if options.log else None
        server.on_request = lambda request: _report(request, log)
        server.on_violation = lambda message: print(f"  refused: {message}", file=sys.stderr, flush=True)
        try:
            stack.enter_context(server)
        except OSError as error:
            print(f"cannot listen on {options.host}:{options.port}: {error}", file=sys.stderr)
            return 2
        print(HELP.format(url=server.url, what=options.script or "an echo"), flush=True)
        ended.wait()
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A scripted model server for Anthropic's and OpenAI's APIs.")
    parser.add_argument("script", nargs="?", type=Path, help="YAML or JSON file; none: an echo assistant")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--log", type=Path, help="append every request to this file, one JSON object a line")
    parser.add_argument("--loop", action="store_true", help="start the script anew when it is played out")
    parser.add_argument("--loose", action="store_true", help="do not refuse what the provider would refuse")
    return parser.parse_args(arguments)


def _report(request: Request, log: TextIO | None) -> None:
    print(f"{request.method} {request.path} {len(request.raw)} bytes", file=sys.stderr, flush=True)
    if log is not None:
        line = {"method": request.method, "path": request.path, "body": request.body}
        print(json.dumps(line, ensure_ascii=False), file=log, flush=True)


if __name__ == "__main__":
    sys.exit(main())
