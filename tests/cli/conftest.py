from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Here, Letta


@pytest.fixture
def letta(tmp_path: Path) -> Letta:
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    return Letta(tmp_path / "home", project)


@pytest.fixture
def here(letta: Letta, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    return Here(letta, monkeypatch, capfd)
