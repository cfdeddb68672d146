"""The fixed overhead of a request stays within its budget: base prompt, default memory, tool schemas."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import quicktok

from letta_code.archive.archive import Archive
from letta_code.archive.store import SqliteArchive
from letta_code.core.codec import dump
from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.memory.git.repository import Author, MemoryRepository
from letta_code.memory.prompt import compile_prompt
from letta_code.memory.seed import default_files
from letta_code.paths import Paths
from letta_code.tools.base import Workspace
from letta_code.tools.toolbox import build_toolbox

BUDGET = 6_000


async def test_system_prompt_and_tools_of_a_new_agent_fit_the_budget(tmp_path: Path) -> None:
    author = Author("letta", "agent-1@letta.local")
    repository = MemoryRepository.create(
        tmp_path / "repo.git", tmp_path / "memory", default_files(), author, "first memory"
    )
    workspace = Workspace(tmp_path, (tmp_path,), tmp_path / "overflow", repository.worktree)
    key = AgentKey(DEFAULT_ORG, "agent-1")
    archive = Archive(SqliteArchive(tmp_path / "archive.db"), key)
    toolbox = build_toolbox(
        workspace, repository, author, key.agent, archive=archive, stored=(Paths.from_environment({}), key)
    )
    base = files("letta_code.agent").joinpath("base_prompt.md").read_text("utf-8")

    system = compile_prompt(base, repository.snapshot())
    tools = json.dumps([dump(spec) for spec in toolbox.specs()], ensure_ascii=False)
    await toolbox.close()

    encoding = quicktok.get_encoding("o200k_base")
    sizes = {"system": len(encoding.encode(system)), "tools": len(encoding.encode(tools))}
    assert sizes["system"] > 500
    assert sizes["tools"] > 500
    assert sum(sizes.values()) <= BUDGET, sizes
