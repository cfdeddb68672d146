"""What this program costs: start-up, prompt compilation, one turn. Own generated data, this machine.

Times drift with load, so every figure stands beside `python -c pass` or another floor of the same run;
quote the ratios. Nothing here is asserted; tests never look at a clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from scripts.bench_memory import memory_costs
from scripts.bench_prefix import prefix_reuse
from scripts.bench_process import LETTA, Cost, instant_model, print_costs, process_cost
from scripts.bench_recall import recall_quality
from scripts.bench_scale import scale_costs
from scripts.bench_tokens import token_errors
from tests.model_server import ModelServer


def start_up(folder: Path, runs: int, floor: Cost) -> None:
    """Print start-up costs."""
    python = sys.executable
    rows = {
        "python -c pass": floor,
        "letta --version": process_cost([LETTA, "--version"], runs),
        "letta --help": process_cost([LETTA, "--help"], runs),
        "python -c 'import openai'": process_cost([python, "-c", "import openai"], runs),
        "python -c 'import anthropic'": process_cost([python, "-c", "import anthropic"], runs),
    }
    print("\nStart-up")
    print_costs(rows, floor)


def turn_costs(folder: Path, runs: int, floor: Cost) -> None:
    """Print what a one-shot turn with an instant model costs beside interpreter and SDK import."""
    project = folder / "project"
    project.mkdir()
    rows = {}
    with ModelServer([{"text": "Hello.", "repeat": True}]) as server:
        environment = instant_model(server, folder / "home")
        for handle in ("openai/gpt-5.5", "anthropic/claude-sonnet-5-5"):
            command = [LETTA, "-p", "hi", "-m", handle]
            rows[f"letta -p hi -m {handle}"] = process_cost(command, runs, environment, project)
    print("\nOne-shot turn, instant model, existing agent")
    print_costs(rows, floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[[], *PARTS, "recall", "scale"],
        help="what to measure; everything without it",
    )
    parser.add_argument("--runs", type=int, default=7, help="runs per figure, the median is shown")
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="the data that `recall` is measured with")
    parser.add_argument(
        "--messages", type=int, default=20_000, metavar="N", help="how many `scale` makes up (20,000)"
    )
    given = parser.parse_args()
    print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count(), "runs": given.runs}))
    folder = Path(tempfile.mkdtemp(prefix="letta-bench-"))
    try:
        floor = process_cost([sys.executable, "-c", "pass"], given.runs)
        parts = {name: partial(part, folder, given.runs, floor) for name, part in PARTS.items()}
        parts["recall"] = partial(recall_quality, given.locomo, folder / "recall")
        parts["scale"] = partial(scale_costs, given.messages, folder / "scale")
        for name in given.parts or parts:
            parts[name]()
    finally:
        shutil.rmtree(folder)


PARTS: Mapping[str, Callable[[Path, int, Cost], None]] = {
    "start": start_up,
    "turn": turn_costs,
    "memory": memory_costs,
    "prefix": prefix_reuse,
    "tokens": token_errors,
}

if __name__ == "__main__":
    main()
