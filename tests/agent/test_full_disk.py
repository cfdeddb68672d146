"""A disk that is full in the middle of a turn: the turn ends, says so, and the conversation goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.agent.full_disk import MOMENTS

ROOT = Path(__file__).resolve().parents[2]


def test_d01_f14_every_turn_ends_and_the_next_one_works_when_there_is_room_again(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error", "-m", "tests.agent.full_disk", str(tmp_path)]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)
    assert run.returncode == 0, run.stderr
    ended = {line["moment"]: line for line in map(json.loads, run.stdout.splitlines())}
    assert tuple(ended) == MOMENTS
    for line in ended.values():
        (first, _, kind), (second, *_) = line["ends"]
        assert (first, kind, second) == ("error", "storage", "success"), line
    # What ran and could not be recorded is said to be unknown; nothing ran that was not announced.
    assert ended["tool"]["results"] == ended["interrupted tool"]["results"] == ["unknown", "interrupted"]
    assert ended["question"]["results"] == ["interrupted", "interrupted"]
    assert (ended["tool"]["ran"], ended["question"]["ran"]) == (["a"], [])
