"""Writers that meet: merged as Git merges, or refused with the names of those who were there first."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from letta_code.errors import MemoryConflict, MemoryEditError
from letta_code.memory.edits import Create, Delete, Describe, Edit, Insert, Put, Rename, Replace
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.rules import PERSON
from tests.memory.conftest import AGENT, Git

LINES = "---\ndescription: Plan.\n---\n" + "".join(f"line {number}\n" for number in range(1, 9))


def everything(repository: MemoryRepository) -> dict[str, tuple[int, bytes]]:
    """Time and content of every file of both folders but objects, which only ever come."""
    found: dict[str, tuple[int, bytes]] = {}
    for root in (repository.git_dir, repository.worktree):
        for folder, _, names in os.walk(root):
            if "objects" not in Path(folder).relative_to(root).parts:
                for name in names:
                    file = Path(folder, name)
                    found[str(file)] = (file.stat().st_mtime_ns, file.read_bytes())
    return found


@pytest.fixture
def plan(repository: MemoryRepository) -> str:
    """The revision that every writer here knew."""
    return repository.commit(Put({"plan.md": LINES.encode()}), "Plan", AGENT).revision


def body(repository: MemoryRepository, path: str = "plan.md") -> str:
    return repository.snapshot().read(path).decode()


def test_edits_of_one_file_merge_line_by_line(repository: MemoryRepository, git: Git, plan: str) -> None:
    repository.commit(Replace("plan", "line 2", "line two"), "1", AGENT, expected=plan)
    repository.commit(Insert("plan", 9, "line 9"), "2", AGENT, expected=plan)
    repository.commit(Put({"plan.md": LINES.replace("line 5", "line five").encode()}), "3", AGENT, None, plan)
    expected = LINES.replace("line 2", "line two").replace("line 5", "line five") + "line 9\n"
    assert body(repository) == expected
    assert (repository.worktree / "plan.md").read_text() == expected
    assert git("status", "--porcelain") == ""


def test_keys_of_the_front_matter_merge_one_by_one(repository: MemoryRepository, git: Git, plan: str) -> None:
    file = repository.worktree / "plan.md"
    file.write_text(LINES.replace("Plan.\n", "Plan.\nlimit: 500\n"))
    git("commit", "-qam", "A limit")
    repository.commit(Describe("plan", "The plan of the week."), "Words", AGENT, expected=plan)
    assert body(repository) == LINES.replace("Plan.", "The plan of the week.\nlimit: 500")
    with pytest.raises(MemoryConflict, match=r'Ada .*"Words".*"description: Plan."'):
        repository.commit(Describe("plan", "Another."), "Late", AGENT, expected=plan)


def test_a_merge_obeys_the_rules(repository: MemoryRepository, git: Git, plan: str) -> None:
    (repository.worktree / "plan.md").write_text(LINES.replace("Plan.\n", "Plan.\nlimit: 66\n"))
    git("commit", "-qam", "A limit")
    with pytest.raises(MemoryEditError, match="limit"):
        repository.commit(Insert("plan", 9, "one line too many"), "more", AGENT, expected=plan)
    (repository.worktree / "plan.md").write_text(LINES.replace("Plan.\n", "Plan.\nread_only: true\n"))
    git("commit", "-qam", "Hands off")
    with pytest.raises(MemoryEditError, match="read-only"):
        repository.commit(Replace("plan", "line 8", "8"), "8", AGENT, expected=plan)
    repository.commit(Replace("plan", "line 8", "8"), "8", AGENT, expected=plan, overrides=PERSON)


def test_a_conflict_says_who_changed_what_and_leaves_everything_as_it_was(
    repository: MemoryRepository, git: Git, plan: str
) -> None:
    (repository.worktree / "plan.md").write_text(LINES.replace("line 3", "third line"))
    git("commit", "-qam", "Better words")
    (repository.worktree / "system/human.md").write_text("a draft\n")
    (repository.worktree / "new.md").write_text("untracked\n")
    (repository.worktree / "system/persona.md").write_text("staged\n")
    git("add", "system/persona.md")
    before = everything(repository)
    edits: tuple[Edit, ...] = (
        Replace("plan", "line 3", "3"),
        Insert("plan", 3, "2.5"),
        Delete("plan"),
        Put({"plan.md": LINES.replace("line 3", "3").encode()}),
        Put({"plan.md": None}),
    )
    for edit in edits:
        with pytest.raises(MemoryConflict) as caught:
            repository.commit(edit, "stale", AGENT, expected=plan)
        said = caught.value.message
        for part in ("plan.md", "Person <p@example.org>", '"Better words"', '"line 3" became "third line"'):
            assert part in said
        assert "\n" not in said
        assert git("rev-parse", "--short=7", "HEAD").strip() in said
        assert "view it again" in caught.value.hint
    assert everything(repository) == before


def test_the_passage_that_an_edit_names_is_found_by_its_place_not_by_chance(
    repository: MemoryRepository, plan: str
) -> None:
    """Words on one line merge; the same words elsewhere are not taken for it."""
    repository.commit(Replace("plan", "line 3", "row 3"), "1", AGENT, expected=plan)
    repository.commit(Insert("plan", 9, "the 3rd line 3"), "2", AGENT)
    with pytest.raises(MemoryConflict):
        repository.commit(Replace("plan", "line 3", "LINE 3"), "stale", AGENT, expected=plan)
    repository.commit(Replace("plan", "3\nline 4", "three\nline 4"), "3", AGENT, expected=plan)
    assert "row three\nline 4\n" in body(repository)


def test_two_who_create_one_file(repository: MemoryRepository, plan: str) -> None:
    repository.commit(Create("notes/a", "A.", "mine"), "First", AGENT, expected=plan)
    head = repository.head()
    for edit in (Create("notes/a", "A.", "yours"), Put({"notes/a.md": b"whole\n"})):
        with pytest.raises(MemoryConflict, match=r'notes/a\.md was made by Ada .*"First"'):
            repository.commit(edit, "Second", AGENT, expected=plan)
    with pytest.raises(MemoryEditError, match="exists already"):
        repository.commit(Create("notes/a", "A."), "Third", AGENT)
    assert repository.head() == head


def test_deletes_and_edits(repository: MemoryRepository, git: Git, plan: str) -> None:
    git("rm", "-q", "plan.md")
    git("commit", "-qm", "No more plans")
    with pytest.raises(MemoryConflict, match=r'plan\.md was deleted or renamed by Person .*"No more plans"'):
        repository.commit(Replace("plan", "line 3", "3"), "3", AGENT, expected=plan)
    with pytest.raises(MemoryEditError, match="nothing would change"):
        repository.commit(Delete("plan"), "gone", AGENT, expected=plan)


def test_an_edit_follows_a_rename_and_a_rename_takes_an_edit_along(
    repository: MemoryRepository, git: Git, plan: str
) -> None:
    git("mv", "plan.md", "week.md")
    git("commit", "-qm", "A better name")
    made = repository.commit(Replace("plan", "line 3", "3"), "3", AGENT, expected=plan)
    assert made.paths == ("week.md",)
    assert body(repository, "week.md") == LINES.replace("line 3", "3")
    known = repository.commit(Replace("week", "line 6", "6"), "6", AGENT, expected=made.revision).parent
    repository.commit(Rename("week", "reference/week"), "moved", AGENT, expected=known)
    assert "\n6\n" in body(repository, "reference/week.md")
    assert git("status", "--porcelain") == ""


def test_a_revision_that_history_lost_is_a_conflict(repository: MemoryRepository) -> None:
    with pytest.raises(MemoryConflict, match="no longer in memory's history"):
        repository.commit(Create("x", "d"), "x", AGENT, expected="1" * 40)


def test_staged_hunks_of_a_person_survive(repository: MemoryRepository, git: Git, plan: str) -> None:
    file = repository.worktree / "plan.md"
    file.write_text(LINES.replace("line 1", "one"))
    git("add", "plan.md")
    file.write_text(LINES.replace("line 1", "one").replace("line 8", "eight"))
    repository.commit(Replace("system/human", "tea", "cake"), "Other", AGENT)
    assert git("diff", "--cached", "--stat").startswith(" plan.md | 2 +-")
    assert "+one" in git("diff", "--cached")
    assert "+eight" in git("diff")
    git("stash", "-q")
    repository.commit(Replace("system/human", "cake", "pie"), "Meanwhile", AGENT)
    git("stash", "pop", "-q", "--index")
    assert "+one" in git("diff", "--cached")
    git("commit", "-qm", "Mine")
    assert "pie" in body(repository, "system/human.md")


def test_a_refused_draft_says_what_to_do(repository: MemoryRepository, plan: str) -> None:
    (repository.worktree / "system/human.md").write_text("draft\n")
    before = everything(repository)
    with pytest.raises(MemoryEditError, match="letta memory status") as caught:
        repository.commit(Replace("system/human", "tea", "x"), "x", AGENT)
    assert "letta memory commit" in caught.value.hint
    assert "git restore system/human.md" in caught.value.hint
    assert everything(repository) == before


def test_a_draft_that_already_says_the_same_is_committed(repository: MemoryRepository, git: Git) -> None:
    (repository.worktree / "a.md").write_text("same\n")
    before = (repository.worktree / "a.md").stat().st_mtime_ns
    repository.commit(Put({"a.md": b"same\n"}), "a", AGENT)
    assert (repository.worktree / "a.md").stat().st_mtime_ns == before
    assert git("status", "--porcelain") == ""


def test_hundreds_of_files_in_one_commit(repository: MemoryRepository, git: Git) -> None:
    files: dict[str, bytes | None] = {f"notes/{n % 20}/{n}.md": b"text %d\n" % n for n in range(300)}
    made = repository.commit(Put(files), "Import", AGENT)
    assert len(made.paths) == 300
    assert git("status", "--porcelain") == git("fsck", "--strict") == ""
    with pytest.raises(MemoryEditError, match=r"gone\.md: no such memory file"):
        repository.commit(Put({"gone.md": None}), "x", AGENT)
    repository.commit(Put(dict.fromkeys(files)), "Undo", AGENT)
    assert not (repository.worktree / "notes").exists()
    assert git("status", "--porcelain") == ""


def test_e13_a_busy_index_lock_is_waited_for(repository: MemoryRepository, git: Git, tmp_path: Path) -> None:
    """A person's `git commit -a` holds it while their editor is open."""
    editor = tmp_path / "editor"
    editor.write_text(
        f'#!/bin/sh\ntouch {tmp_path}/held\nuntil [ -e {tmp_path}/close ]; do :; done\necho Mine > "$1"\n'
    )
    editor.chmod(0o700)
    (repository.worktree / "system/human.md").write_text("---\ndescription: d\n---\nperson\n")
    with ThreadPoolExecutor() as threads:
        person = threads.submit(git, "commit", "-qa", environment={"GIT_EDITOR": str(editor)})
        while not (tmp_path / "held").exists():
            assert not person.done()
        again = MemoryRepository.open(repository.git_dir, index_wait=60)
        ours = threads.submit(again.commit, Create("x", "d"), "Ours", AGENT)
        while _is_free(repository.git_dir / "letta.lock"):
            assert not ours.done()
        (tmp_path / "close").touch()
        ours.result()
        person.result()
    assert git("log", "--format=%s", "-2") == "Ours\nMine\n"
    assert git("status", "--porcelain") == ""


def _is_free(lock: Path) -> bool:
    try:
        with FileLock(lock, timeout=0):
            return True
    except Timeout:
        return False
