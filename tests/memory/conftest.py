from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from letta_code.memory.git.repository import Author, MemoryRepository

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
