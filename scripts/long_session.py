#!/usr/bin/env python3
"""500 turns in one conversation through a window of 32,000 tokens: what it takes, and what is still known.

    long_session.py [--turns N] [--window N] [--recalled N]

The scripted server is strict and refuses requests that are larger than the window. Prints time, requests,
compactions and the largest request; the exit status is 1 when a request was refused, a compaction lost the
open task, or what was said in turn 3 is not found again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.model_server import ModelServer
from tests.reliability.cells import fresh
from tests.reliability.long_session import Broken, LongSession
from tests.reliability.sessions import Sessions


def main() -> int:
    """Play, print, judge."""
    given = _options()
    os.environ["LETTA_RETRY_BASE_SECONDS"] = "0"
    with (
        tempfile.TemporaryDirectory(prefix="letta-long-") as folder,
        ModelServer([], window=given.window, reported_window=given.window) as server,
    ):
        long = LongSession(Sessions(fresh(Path(folder))), server, given.turns, given.recalled)
        try:
            asyncio.run(long.run())
        except Broken as error:
            print(f"BROKEN: {error}", file=sys.stderr)
            return 1
        print(long.report())
    return 1 if long.found is False else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="a conversation much longer than the window")
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--window", type=int, default=32_000, help="tokens")
    parser.add_argument("--recalled", type=int, default=480, help="the turn in which the fact is asked for")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
