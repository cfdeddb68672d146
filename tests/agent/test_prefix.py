"""Each request begins with all that the one before sent, in a session as the command line opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench_prefix import measured


async def test_memory_edits_keep_the_prefix_of_openai_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETTA_HOME", str(tmp_path / "home"))
    found = await measured(tmp_path, "openai/gpt-6.2-sol", turns=3, edit_every=2)
    assert (found.requests, found.broken) == (6, 0)
