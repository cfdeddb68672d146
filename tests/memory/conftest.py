from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from letta_code.memory.git.repository import Author, MemoryRepository
from tests.memory.machines import Machine, make_bare

AGENT = Author("Ada", "agent-1@letta.invalid")
SEED = {
    "system/persona.md": "---\ndescription: Who I am.\n---\nI am careful.\n",
    "system/human.md": "---\ndescription: The person.\nlimit: 40\n---\nLikes tea.\n",
    "reference/build.md": "---\ndescription: How to build.\n---\nmake\n",
}

Git = Callable[..., str]


@pytest.fixture
def repository(tmp_path: Path) -> MemoryRepository:
    return MemoryRepository.create(tmp_path / "repo.git", tmp_path / "memory", SEED, AGENT, "Begin")


@pytest.fixture
def git(repository: MemoryRepository) -> Git:
    """A person's git in the work tree; fails loudly."""

    def run(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=repository.worktree,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(repository.git_dir.parent),
                "GIT_AUTHOR_NAME": "Person",
                "GIT_AUTHOR_EMAIL": "p@example.org",
                "GIT_COMMITTER_NAME": "Person",
                "GIT_COMMITTER_EMAIL": "p@example.org",
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return make_bare(tmp_path / "shared.git")


@pytest.fixture(scope="session")
def in_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two machines in step, and what they share."""
    folder = tmp_path_factory.mktemp("in-step")
    bare = make_bare(folder / "shared.git")
    desk, laptop = Machine(folder / "desk", bare), Machine(folder / "laptop", bare)
    assert desk.sync().sent == 1
    assert laptop.sync().outcome == "synced"
    assert desk.memory.head() == laptop.memory.head()
    return folder


@pytest.fixture
def two(tmp_path: Path, in_step: Path) -> tuple[Machine, Machine]:
    """Two machines in step, which share `shared.git`."""
    shutil.copytree(in_step, tmp_path, dirs_exist_ok=True)
    for name in ("desk", "laptop"):
        config = tmp_path / name / "repo.git" / "config"
        config.write_text(config.read_text().replace(str(in_step), str(tmp_path)))
    bare = tmp_path / "shared.git"
    return Machine(tmp_path / "desk", bare), Machine(tmp_path / "laptop", bare)
