"""`scripts/stress_memory.py` at a small size; it says LOST and fails when a promise is broken."""

from __future__ import annotations

from pathlib import Path

from scripts.stress_memory import kill, race


def test_overlapping_writers_and_a_person_lose_nothing(tmp_path: Path) -> None:
    assert "12 accepted" in race(tmp_path, 3, 4)


def test_a_writer_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    assert "4 kills" in kill(tmp_path, 4)
