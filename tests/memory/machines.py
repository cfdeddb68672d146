"""Machines that share a memory, for tests of syncing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from letta_code.memory.edits import Create, Replace
from letta_code.memory.git.merge import Keep
from letta_code.memory.git.remote import set_remote
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.sync import SyncReport, sync
from letta_code.memory.history import Author
from letta_code.memory.transport import Transport

LINES = "".join(f"line {number}\n" for number in range(12))
SEED = {
    "system/persona.md": "---\ndescription: Who I am.\n---\nI am careful.\n",
    "system/human.md": f"---\ndescription: The person.\nlimit: 400\n---\n{LINES}",
    "reference/build.md": "---\ndescription: How to build.\n---\nmake\n",
}


class Machine:
    """One machine's memory, synced with `remote`."""

    def __init__(self, folder: Path, remote: Path, files: dict[str, str] | None = None) -> None:
        self.name = folder.name
        self.author = Author(folder.name, f"{folder.name}@example.org")
        self.remote = str(remote)
        git_dir = folder / "repo.git"
        if not git_dir.exists():
            MemoryRepository.create(git_dir, folder / "memory", files or SEED, self.author, "Start memory")
            set_remote(MemoryRepository.open(git_dir), self.remote)
        self.memory = MemoryRepository.open(git_dir)

    def sync(self, keep: Keep | None = None, adopt: bool = False) -> SyncReport:
        transport = Transport(self.memory.git_dir, self.remote, os.environ, 40)
        return sync(self.memory, transport, self.author, "agent-1", keep, adopt)

    def replace(self, path: str, old: str, new: str, why: str = "Said so") -> str:
        return self.memory.commit(Replace(path, old, new), why, self.author).revision

    def create(self, path: str, text: str) -> str:
        return self.memory.commit(Create(path, "About it.", text), "New", self.author).revision

    def text(self, path: str) -> str:
        text = self.memory.snapshot().read(path).decode()
        assert (self.memory.worktree / path).read_bytes().decode() == text
        return text

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=P", "-c", "user.email=p@example.org", *words],
            cwd=self.memory.worktree,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def whole(self) -> object:
        """HEAD, index and work tree, to compare."""
        files = {
            str(file.relative_to(self.memory.worktree)): file.read_bytes()
            for file in self.memory.worktree.rglob("*")
            if file.is_file()
        }
        return self.memory.head(), (self.memory.git_dir / "index").read_bytes(), files


def make_bare(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    return folder
