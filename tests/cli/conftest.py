from __future__ import annotations

import subprocess
from binascii import b2a_base64
from importlib import resources
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


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as tiktoken keeps it: vocabularies as published, under the SHA-1 of their addresses."""
    folder = tmp_path_factory.mktemp("vocabularies")
    (folder / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").write_bytes(_lines("cl100k"))
    (folder / "fb374d419588a4632f3f557e76b4b70aebbca790").write_bytes(_lines("o200k"))
    return folder


def _lines(name: str) -> bytes:
    packed = resources.files("quicktok").joinpath(f"data/{name}.vocab").read_bytes()
    lines: list[bytes] = []
    at = 4
    while at < len(packed):
        end = at + 2 + packed[at]  # the length in two bytes, the token, its number in four
        lines.append(b"%s %d\n" % (b2a_base64(packed[at + 2 : end], newline=False), len(lines)))
        at = end + 4
    return b"".join(lines)
