"""`memory_apply_patch` and the classic tools: other words for the same commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.errors import MemoryEditError, ToolError
from letta_code.memory.git.log import log
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.patches import Append, Patch, Rewrite
from letta_code.tools.base import Call, Workspace
from letta_code.tools.memory_classic import CLASSIC
from letta_code.tools.toolbox import Toolbox, build_toolbox
from tests.memory.conftest import AGENT, SEED

OTHERS = ("memory_apply_patch", *(kind.name for kind in CLASSIC))
FILES = {path: text.encode() for path, text in SEED.items()}


@pytest.fixture
def repository(tmp_path: Path) -> MemoryRepository:
    return MemoryRepository.create(tmp_path / "repo.git", tmp_path / "memory", SEED, AGENT, "Begin")


def toolbox(repository: MemoryRepository, names: tuple[str, ...] = OTHERS) -> Toolbox:
    root = repository.git_dir.parent
    workspace = Workspace(root, (root,), root / "overflow", repository.worktree)
    return build_toolbox(workspace, repository, AGENT, "agent-1", agents_tools=names)


async def run(repository: MemoryRepository, name: str, **arguments: Any) -> str:
    tool = toolbox(repository).get(name)
    assert tool is not None
    given = tool.arguments(**arguments)
    assert tool.title(given)
    assert tool.preview(given)
    output = await tool.run(given, Call("call-1", "conv-1"))
    assert output.committed is not None
    return output.content[0].text  # type: ignore[union-attr]


def body(repository: MemoryRepository, path: str) -> str:
    return repository.snapshot().read(path).decode().split("---\n", 2)[2]


def test_they_are_offered_only_to_agents_that_have_them(repository: MemoryRepository) -> None:
    plain = toolbox(repository, ())
    assert not set(OTHERS) & set(plain.names)
    assert set(toolbox(repository, ("memory_rethink",)).names) - set(plain.names) == {"memory_rethink"}
    assert toolbox(repository, ("memory_rethink",)).specs()[: len(plain.specs())] == plain.specs()


async def test_the_classic_tools_commit_to_system_with_provenance(repository: MemoryRepository) -> None:
    said = await run(repository, "core_memory_append", label="human", content="Asks for brevity.")
    assert "in every project's memory: system/human.md" in said
    assert body(repository, "system/human.md") == "Likes tea.\nAsks for brevity.\n"
    await run(repository, "core_memory_replace", label="human", old_content="tea", new_content="mate")
    await run(repository, "memory_replace", label="human", old_string="mate", new_string="milk")
    await run(repository, "memory_insert", label="persona", new_string="First.", insert_line=0)
    await run(repository, "memory_insert", label="persona", new_string="Last.")
    assert body(repository, "system/persona.md") == "First.\nI am careful.\nLast.\n"
    await run(repository, "memory_rethink", label="persona", new_memory="I am bold.")
    await run(repository, "memory_rethink", label="new", new_memory="Made.")
    assert body(repository, "system/persona.md") == "I am bold.\n"
    assert body(repository, "system/new.md") == "Made.\n"
    commits = log(repository, 7)
    assert {commit.trailers["Letta-Source"] for commit in commits} == {"inferred"}
    assert {commit.trailers["Letta-Tool-Call"] for commit in commits} == {"call-1"}
    assert "description: Who I am." in repository.snapshot().read("system/persona.md").decode()


async def test_the_blocks_rules_hold_for_them(repository: MemoryRepository) -> None:
    head = repository.head()
    with pytest.raises(ToolError, match="limit"):
        await run(repository, "core_memory_append", label="human", content="x" * 50)
    with pytest.raises(ToolError, match="is not in the body"):
        await run_only(repository, "memory_replace", label="human", old_string="coffee", new_string="x")
    with pytest.raises(ToolError, match="no such memory file"):
        await run_only(repository, "core_memory_append", label="nobody", content="x")
    with pytest.raises(ToolError, match="insert_line"):
        await run_only(repository, "memory_insert", label="human", new_string="x", insert_line=99)
    assert repository.head() == head


async def run_only(repository: MemoryRepository, name: str, **arguments: Any) -> None:
    tool = toolbox(repository).get(name)
    assert tool is not None
    await tool.run(tool.arguments(**arguments), Call("call-1", "conv-1"))


async def test_a_patch_is_one_commit_of_many_files(repository: MemoryRepository) -> None:
    patch = """*** Begin Patch
*** Add File: notes/a
+one
+two
*** Update File: system/human.md
*** Move to: system/person.md
@@
-Likes tea.
+Likes mate.
*** Update File: system/persona.md
@@
 description: Who I am.
 ---
+Hello.
 I am careful.
*** Delete File: reference/build.md
*** End Patch"""
    await run(repository, "memory_apply_patch", reason="Tidy", input=patch)
    (commit,) = log(repository, 1)
    assert (commit.reason, len(commit.paths)) == ("Tidy", 5)
    assert body(repository, "notes/a.md") == "one\ntwo\n"
    assert body(repository, "system/person.md") == "Likes mate.\n"
    assert body(repository, "system/persona.md") == "Hello.\nI am careful.\n"
    assert repository.snapshot().find("system/human.md") is None
    assert repository.snapshot().find("reference/build.md") is None
    assert repository.status() == ()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("", "names a file first"),
        ("+x", "names a file first"),
        ("*** Add File: system/human.md\n+x", "exists already"),
        ("*** Update File: nobody.md\n@@\n-x\n+y", "no such memory file"),
        ("*** Update File: system/human.md\n@@\n-Likes coffee.\n+y", "does not fit"),
        ("*** Update File: system/human.md\n@@\n---\n+y", "several places|does not fit"),
        ("*** Update File: system/human.md\n@@\n+y", "needs a line of context"),
        ("*** Update File: system/human.md\n@@\nLikes tea.", "cannot begin with"),
        (
            "*** Update File: system/human.md\n*** Move to: system/persona.md\n@@\n-Likes tea.\n+x",
            "exists already",
        ),
        ("*** Delete File: system/human\n*** Delete File: system/human.md", "once"),
        ("*** Delete File: ../x", r"`\.\.`"),
    ],
)
def test_a_patch_that_does_not_fit_says_why(lines: str, says: str) -> None:
    with pytest.raises(MemoryEditError, match=says):
        Patch.parse(f"*** Begin Patch\n{lines}\n*** End Patch").apply(FILES)


def test_text_without_the_frame_is_no_patch() -> None:
    with pytest.raises(MemoryEditError, match="begins with"):
        Patch.parse("--- a\n+++ b\n")


async def test_a_read_only_file_keeps_through_patch_folder_delete_and_rename(
    repository: MemoryRepository,
) -> None:
    locked = repository.worktree / "team" / "rules.md"
    locked.parent.mkdir()
    locked.write_text("---\ndescription: d\nread_only: true\n---\nFixed.\n")
    from letta_code.memory.rules import PERSON

    repository.commit_drafts("Mine", AGENT, overrides=PERSON)
    head = repository.head()
    patch = "*** Begin Patch\n*** Update File: team/rules.md\n@@\n-Fixed.\n+Loose.\n*** End Patch"
    with pytest.raises(ToolError, match="read-only"):
        await run_only(repository, "memory_apply_patch", reason="r", input=patch)
    for arguments in (
        {"command": "delete", "file_path": "team/"},
        {"command": "rename", "old_path": "team/", "new_path": "crew/"},
        {"command": "update_description", "file_path": "team/rules", "description": "x"},
    ):
        with pytest.raises(ToolError, match="read-only"):
            await run_only(repository, "memory", reason="r", **arguments)
    assert repository.head() == head


@given(st.text(max_size=80), st.text(max_size=80))
def test_appending_keeps_what_was_there_and_rewriting_keeps_the_front_matter(body: str, text: str) -> None:
    start = b"---\ndescription: d\n---\n" + body.encode("utf-8", "replace")
    try:
        appended = Append("a.md", text).apply({"a.md": start})["a.md"]
        rewritten = Rewrite("a.md", text).apply({"a.md": start})["a.md"]
    except (MemoryEditError, UnicodeEncodeError):
        return
    assert appended is not None
    assert appended.startswith(start)
    assert rewritten is not None
    assert rewritten.startswith(b"---\ndescription: d\n---\n")


@given(st.text(max_size=300))
def test_any_text_is_a_patch_or_is_refused(text: str) -> None:
    for given_text in (text, f"*** Begin Patch\n*** Update File: system/human.md\n{text}\n*** End Patch"):
        try:
            Patch.parse(given_text).apply(FILES)
        except MemoryEditError:
            continue
