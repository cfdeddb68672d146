from __future__ import annotations

from typing import Any

import pytest

from letta_code.core.tooling import CommitDisplay, ToolOutput
from letta_code.errors import ToolError
from letta_code.memory.git.log import log
from letta_code.memory.git.repository import MemoryRepository
from letta_code.tools.base import Call
from letta_code.tools.memory import MemoryArguments, MemoryTool
from letta_code.tools.memory_writing import MemoryWriter
from tests.memory.conftest import AGENT


async def _run(repository: MemoryRepository, **arguments: Any) -> ToolOutput:
    tool = MemoryTool(MemoryWriter(repository, AGENT, "agent-1"))
    given = MemoryArguments(**arguments)
    assert tool.has_effects(given) is (given.command != "view")
    assert tool.title(given)
    return await tool.run(given, Call("call-1", "conv-1"))


def _text(output: ToolOutput) -> str:
    return "".join(getattr(block, "text", "") for block in output.content)


async def test_every_command_is_one_commit(repository: MemoryRepository) -> None:
    absolute = str(repository.worktree / "notes/b.md")
    calls: list[dict[str, Any]] = [
        {"command": "create", "file_path": "memory/notes/a", "description": "d", "file_text": "one\ntwo"},
        {
            "command": "str_replace",
            "file_path": "/memories/notes/a.md",
            "old_string": "one\n",
            "new_string": "",
        },
        {"command": "insert", "file_path": "notes/a.md", "insert_line": 2, "insert_text": "three"},
        {"command": "update_description", "file_path": "notes/a", "description": "other: one"},
        {"command": "rename", "old_path": "notes/a", "new_path": absolute},
    ]
    for number, arguments in enumerate(calls):
        output = await _run(repository, reason=f"step {number}", source="inferred", **arguments)
        assert output.committed is not None
        assert output.committed.revision == repository.head()
        assert repository.head()[:7] in _text(output)
        assert isinstance(output.display[0], CommitDisplay)
        commit = log(repository, limit=1)[0]
        assert (commit.reason, commit.author_name) == (f"step {number}", "Ada")
        assert commit.trailers == {
            "Letta-Agent": "agent-1",
            "Letta-Conversation": "conv-1",
            "Letta-Tool-Call": "call-1",
            "Letta-Source": "inferred",
        }
    shown = await _run(repository, command="view", file_path="notes/b")
    assert _text(shown) == "notes/b.md\ndescription: other: one\n\n1\ttwo\n2\tthree"
    assert (await _run(repository, command="delete", reason="x", file_path="notes/")).committed is not None
    assert "notes" not in _text(await _run(repository, command="view"))
    assert len(log(repository)) == 7


async def test_a_view_lists_folders_and_commits_nothing(repository: MemoryRepository) -> None:
    head = repository.head()
    output = await _run(repository, command="view", file_path="memory/reference/")
    assert _text(output).endswith("1 files:\nreference/build.md — How to build.")
    assert output.committed is None
    assert repository.head() == head


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"command": "create", "file_path": "a", "description": "d"}, "reason"),
        ({"command": "create", "file_path": "a", "reason": "r"}, "description"),
        (
            {"command": "str_replace", "file_path": "system/human", "old_string": "tea", "reason": "r"},
            "new_string",
        ),
        (
            {
                "command": "str_replace",
                "file_path": "system/human",
                "old_string": "e",
                "new_string": "",
                "reason": "r",
            },
            "lines 1",
        ),
        (
            {"command": "insert", "file_path": "system/human", "insert_text": "x", "reason": "r"},
            "insert_line",
        ),
        ({"command": "delete", "file_path": "/etc/passwd", "reason": "r"}, "outside the memory folder"),
        ({"command": "delete", "file_path": "../x", "reason": "r"}, "`..`"),
        ({"command": "view", "file_path": "humen"}, "no such memory file"),
        (
            {
                "command": "str_replace",
                "file_path": "hum",
                "old_string": "a",
                "new_string": "b",
                "reason": "r",
            },
            "system/human.md",
        ),
    ],
)
async def test_errors_are_words_the_model_can_act_on(
    repository: MemoryRepository, arguments: dict[str, Any], says: str
) -> None:
    head = repository.head()
    with pytest.raises(ToolError, match=says.replace(".", r"\.")):
        await _run(repository, **arguments)
    assert repository.head() == head
