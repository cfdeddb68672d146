#!/usr/bin/env python3
"""Every fault a model or its server can have, in three dialects, in `letta -p` and in the chat.

    fault_matrix.py [--only NAME] [--dialect NAME] [--form one-shot|chat] [--processes N]

Each cell is the real program against the scripted server: the fault is met, the end looked at, and the
conversation resumed in another dialect and with another model of the same one, where a strict server refuses
what a provider would. The results go into the table in docs/reliability.md; a run of a part changes its own
cells only. The exit status is 1 when a cell fails. The faults are listed in tests/reliability/faults.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.reliability.cells import FORMS, WAYS, Form, Way, play
from tests.reliability.faults import FAULTS, Fault
from tests.reliability.table import DOCUMENT, Cells, known, with_table

Job = tuple[int, int, Form]
"""Places in `FAULTS` and `WAYS`, and the form."""


def run(job: Job) -> list[str]:
    """Play one cell; what is wrong with it."""
    fault, way, form = FAULTS[job[0]], WAYS[job[1]], job[2]
    with tempfile.TemporaryDirectory(prefix="letta-cell-") as folder:
        try:
            return play(fault, way, form, Path(folder))
        except (AssertionError, OSError, TimeoutError, ValueError) as error:
            return [f"{type(error).__name__}: {error}"]


def main() -> int:
    """Play what was asked for."""
    given = _options()
    jobs = list(_jobs(given))
    if not jobs:
        print("no such fault", file=sys.stderr)
        return 2
    started = time.monotonic()
    cells: Cells = {}
    failed = 0
    with ProcessPoolExecutor(given.processes) as pool:
        waiting = {pool.submit(run, job): job for job in jobs}
        for count, future in enumerate(as_completed(waiting), 1):
            job = waiting[future]
            fault, way = FAULTS[job[0]], WAYS[job[1]]
            wrong = future.result()
            cells[fault.name, way.name, job[2]] = not wrong
            if wrong:
                failed += 1
                print(f"FAILED {fault.name} | {way.name} | {job[2]}")
                print("\n".join(f"    {line}" for line in wrong), flush=True)
            elif not count % 50:
                print(f"{count} of {len(jobs)}", file=sys.stderr, flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"{len(jobs)} cells, {failed} failed, {minutes:.1f} minutes")
    document = DOCUMENT.read_text("utf-8")
    cells = known(document) | cells
    if len(cells) == len(FAULTS) * len(WAYS) * len(FORMS):
        DOCUMENT.write_text(with_table(document, cells), "utf-8")
        print(f"the table is in {DOCUMENT.name}")
    return 1 if failed else 0


def _jobs(given: argparse.Namespace) -> Iterator[Job]:
    for number, fault in enumerate(FAULTS):
        for place, way in enumerate(WAYS):
            for form in FORMS:
                if _wanted(fault, way, form, given):
                    yield number, place, form


def _wanted(fault: Fault, way: Way, form: Form, given: argparse.Namespace) -> bool:
    return (
        (given.only is None or given.only in fault.name)
        and (given.dialect is None or given.dialect.lower() in way.name.lower())
        and (given.form is None or given.form == form)
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="every fault, three dialects, one-shot and chat")
    parser.add_argument("--only", metavar="NAME", help="faults whose name has this in it")
    parser.add_argument("--dialect", metavar="NAME", help="a part of a dialect's name, such as anthropic")
    parser.add_argument("--form", choices=FORMS)
    parser.add_argument("--processes", type=int, default=4)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
