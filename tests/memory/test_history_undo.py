"""Going back: revert and restore make a commit or change nothing, and never touch drafts."""

from __future__ import annotations

import pytest

from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.memory.edits import Create, Delete, Replace
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.undo import restore, restoring, revert
from letta_code.memory.rules import PERSON
from tests.memory.conftest import AGENT, SEED, Git


def test_a_revert_in_the_way_of_later_commits_names_them(repository: MemoryRepository) -> None:
    first = repository.commit(Replace("system/human", "tea", "cake"), "Cake", AGENT)
    repository.commit(Create("notes/a", "d", "unrelated"), "Unrelated", AGENT)
    later = repository.commit(Replace("system/human", "cake", "pie"), "Pie", AGENT)
    with pytest.raises(MemoryStoreError) as caught:
        revert(repository, first.revision, AGENT)
    assert f'system/human.md ({later.revision[:10]} "Pie")' in caught.value.message
    assert "Unrelated" not in caught.value.message
    assert f"revert {later.revision[:10]} first" in caught.value.hint
    assert repository.head() == later.revision


def test_a_merge_and_the_first_commit_are_not_reverted(repository: MemoryRepository, git: Git) -> None:
    first = repository.head()
    git("switch", "-qc", "side")
    repository.commit(Create("notes/s", "d", "s"), "Side", AGENT)
    git("switch", "-q", "main")
    repository.commit(Create("notes/m", "d", "m"), "Main", AGENT)
    git("merge", "-q", "--no-edit", "side")
    head = repository.head()
    for revision, word in ((head, "is a merge"), (first, "first commit")):
        with pytest.raises(MemoryStoreError, match=word) as caught:
            revert(repository, revision, AGENT)
        assert caught.value.hint
    assert repository.head() == head


def test_a_revert_obeys_the_rules_of_who_asks(repository: MemoryRepository, git: Git) -> None:
    (repository.worktree / "system" / "rule.md").write_text("---\ndescription: d\nread_only: true\n---\n1\n")
    git("add", ".")
    git("commit", "-qm", "A rule")
    with pytest.raises(MemoryEditError, match="read-only"):
        revert(repository, "HEAD", AGENT)
    revert(repository, "HEAD", AGENT, overrides=PERSON)
    assert repository.snapshot().find("system/rule.md") is None


def test_e45_restore_keeps_untracked_files_and_lists_every_effect(
    repository: MemoryRepository, git: Git
) -> None:
    start = repository.head()
    repository.commit(Replace("system/human", "tea", "cake"), "1", AGENT)
    repository.commit(Delete("system/persona"), "2", AGENT)
    repository.commit(Create("system/later", "d", "later"), "3", AGENT)
    (repository.worktree / "system" / "untracked.bin").write_bytes(b"\0mine")
    (repository.worktree / "reference" / "build.md").write_text("a draft")
    plan = restoring(repository, "system", start)
    assert [(effect.path, effect.what) for effect in plan.effects] == [
        ("system/human.md", "changed"),
        ("system/later.md", "removed"),
        ("system/persona.md", "brought back"),
        ("system/untracked.bin", "kept"),
    ]
    assert restoring(repository, "reference", start).effects[0].what == "kept"
    head = repository.head()
    made = restore(repository, "system", start, "As it was", AGENT)
    assert made.parent == head
    assert made.paths == ("system/human.md", "system/later.md", "system/persona.md")
    files = {name: repository.read("HEAD", name).decode() for name in repository.snapshot().entries}
    assert files == SEED
    assert (repository.worktree / "system" / "untracked.bin").read_bytes() == b"\0mine"
    assert (repository.worktree / "reference" / "build.md").read_text() == "a draft"
    assert (repository.worktree / "system" / "human.md").read_text() == SEED["system/human.md"]
    assert not (repository.worktree / "system" / "later.md").exists()
    assert git("status", "--porcelain").split("\n")[:2] == [
        " M reference/build.md",
        "?? system/untracked.bin",
    ]
    assert b"later" in repository.read(head, "system/later.md")


def test_e45_a_draft_in_the_way_stops_the_whole_restore(repository: MemoryRepository) -> None:
    start = repository.head()
    repository.commit(Replace("system/human", "tea", "cake"), "1", AGENT)
    head = repository.commit(Replace("system/persona", "careful", "bold"), "2", AGENT).revision
    (repository.worktree / "system" / "human.md").write_text("a draft")
    plan = restoring(repository, "", start)
    assert plan.blocked == ("system/human.md",)
    with pytest.raises(MemoryEditError, match=r"system/human\.md"):
        restore(repository, "", start, "As it was", AGENT)
    assert repository.head() == head
    assert (repository.worktree / "system" / "human.md").read_text() == "a draft"
    assert b"bold" in (repository.worktree / "system" / "persona.md").read_bytes()


def test_restore_of_nothing_is_said(repository: MemoryRepository) -> None:
    with pytest.raises(MemoryEditError, match="is as it was"):
        restore(repository, "system/human.md", "HEAD", "x", AGENT)
    with pytest.raises(MemoryStoreError, match="there is no"):
        restore(repository, "system/nobody.md", "HEAD", "x", AGENT)


@pytest.mark.parametrize("draft", ["notes", "notes/a.md/mine.md"])
def test_e45_a_dry_run_says_that_a_draft_lies_in_the_way(repository: MemoryRepository, draft: str) -> None:
    repository.commit(Create("notes/a", "d", "text"), "New", AGENT)
    repository.commit(Delete("notes/a"), "Gone", AGENT)
    file = repository.worktree / draft
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("mine")
    plan = restoring(repository, "notes", "HEAD~1")
    assert plan.blocked == ("notes/a.md",)
    with pytest.raises(MemoryEditError):
        restore(repository, "notes", "HEAD~1", "back", AGENT)
    assert file.read_text() == "mine"
