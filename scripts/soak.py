#!/usr/bin/env python3
"""2,000 turns in one process: does it grow, and is every conversation whole?

    soak.py [--turns N] [--length N] [--last N]

Conversations in three dialects against the strict scripted server, closed and opened again in another
dialect every ten turns, with file edits, shell commands, memory writes, interrupts and faults from the list
of the fault matrix; retries do not wait. Prints what the process held; the exit status is 1 when a bound was
broken, a turn ended wrongly, or a conversation on disk is not the one that was played.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.reliability.bounds import beyond, report
from tests.reliability.cells import fresh
from tests.reliability.scripted import ScriptedServer
from tests.reliability.sessions import Sessions
from tests.reliability.soak import Broken, Soak


def main() -> int:
    """Play, print, judge."""
    given = _options()
    os.environ["LETTA_RETRY_BASE_SECONDS"] = "0"
    with tempfile.TemporaryDirectory(prefix="letta-soak-") as folder, ScriptedServer() as server:
        conversations = (given.turns - given.last) // given.length
        soak = Soak(Sessions(fresh(Path(folder))), server, conversations, given.length, given.last)
        started = time.monotonic()
        try:
            asyncio.run(soak.run())
        except Broken as error:
            print(f"BROKEN: {error}", file=sys.stderr)
            return 1
    print(report(soak))
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    broken = beyond(soak.samples)
    for line in broken:
        print(f"BROKEN: {line}", file=sys.stderr)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="many turns in one process")
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--length", type=int, default=50, help="turns of a conversation")
    parser.add_argument("--last", type=int, default=200, help="turns of the last one, in one session")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
