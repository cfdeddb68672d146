"""`letta -p` when a person left a merge unfinished in memory, or committed what a merge left (E03)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from letta_code.agent.state import AgentStore
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.seed import default_files
from letta_code.paths import Paths
from tests.cli.harness import Letta
from tests.cli.test_continuity import git
from tests.model_server import ModelServer

MARKED = "---\ndescription: d\n---\n<<<<<<< HEAD\ncake\n=======\npie\n>>>>>>> side\n"


def prepared(letta: Letta) -> MemoryRepository:
    store = AgentStore(Paths.from_environment({"LETTA_HOME": str(letta.home)}))
    return store.memory(store.create("letta", "Be kind. {CORE_MEMORY}", default_files()))


def committed(folder: Path, text: str) -> None:
    (folder / "system/food.md").write_text(f"---\ndescription: d\n---\n{text}\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--no-verify", "-m", text)


def test_e03_the_last_committed_memory_is_used_with_a_warning(letta: Letta) -> None:
    memory = prepared(letta)
    folder = memory.worktree
    git(folder, "switch", "-q", "-c", "side")
    committed(folder, "pie")
    git(folder, "switch", "-q", "main")
    committed(folder, "cake")
    head = memory.head()
    with ModelServer([{"text": "Fine.", "repeat": True}]) as server:
        letta.environment |= {"VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x"}
        assert b"CONFLICT" in _merge(folder)
        done = letta("-p", "hello")
        assert (done.code, done.out) == (0, "Fine.\n"), done.err
        assert "warning: a merge is unfinished in the memory folder" in done.err
        assert "git merge --abort" in done.err
        assert done.err.count("\n") == 1
        assert memory.head() == head
        (folder / "system/food.md").write_text(MARKED)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--no-verify", "-m", "Spread")
        done = letta("-p", "hello again")
        assert (done.code, done.out) == (0, "Fine.\n"), done.err
        assert "warning: memory: system/food.md holds conflict markers" in done.err
    for request in server.requests:
        asked = json.dumps(request.body)
        assert "cake" in asked
        assert "<<<<<<< HEAD" not in asked


def _merge(folder: Path) -> bytes:

    return subprocess.run(["git", "merge", "side"], cwd=folder, capture_output=True, check=False).stdout
