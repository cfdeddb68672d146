from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from letta_code.errors import MemoryConflict, MemoryEditError, MemoryStoreError
from letta_code.memory.edits import Create, Delete, Describe, Edit, Insert, Rename, Replace
from letta_code.memory.git.log import diff, log
from letta_code.memory.git.repository import MemoryRepository, Provenance
from letta_code.memory.git.undo import revert
from tests.memory.conftest import AGENT, SEED, Git


def test_a_commit_is_what_git_sees_and_leaves_the_work_tree_clean(
    repository: MemoryRepository, git: Git
) -> None:
    made = repository.commit(
        Replace("system/human", "tea", "coffee"),
        "Said so",
        AGENT,
        Provenance("agent-1", "conv-1", "call-1", "user-stated"),
    )
    assert git("status", "--porcelain") == ""
    assert git("fsck", "--strict") == ""
    assert (
        git("log", "-1", "--format=%an|%s|%(trailers:key=Letta-Source,valueonly)").strip()
        == "Ada|Said so|user-stated"
    )
    assert git("--git-dir", str(repository.git_dir), "log", "--format=%H", "-1").strip() == made.revision
    assert made.paths == ("system/human.md",)
    assert made.trailers["Letta-Tool-Call"] == "call-1"
    assert (repository.worktree / "system/human.md").read_text().endswith("Likes coffee.\n")


def test_the_folder_can_be_moved_and_is_private(
    repository: MemoryRepository, tmp_path: Path, git: Git
) -> None:
    assert repository.git_dir.stat().st_mode & 0o077 == 0
    assert repository.worktree.stat().st_mode & 0o077 == 0
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    os.rename(tmp_path / "repo.git", moved / "repo.git")
    os.rename(tmp_path / "memory", moved / "memory")
    again = MemoryRepository.open(moved / "repo.git")
    again.commit(Replace("system/human", "tea", "cake"), "Moved", AGENT)
    done = subprocess.run(
        ["git", "status", "--porcelain"], cwd=moved / "memory", capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


def test_a_persons_commit_and_revert_are_seen_next(repository: MemoryRepository, git: Git) -> None:
    (repository.worktree / "system/persona.md").write_text("Draft\n")
    assert b"careful" in repository.snapshot().read("system/persona.md")
    assert [(d.path, d.state) for d in repository.status()] == [("system/persona.md", "modified")]
    git("commit", "-qam", "Mine")
    assert repository.snapshot().read("system/persona.md") == b"Draft\n"
    git("revert", "--no-edit", "HEAD")
    assert b"careful" in repository.snapshot().read("system/persona.md")


def test_revert_makes_a_commit_and_keeps_drafts_and_untracked_files(
    repository: MemoryRepository, git: Git
) -> None:
    made = repository.commit(Create("system/偏好", "p", "$& {CORE_MEMORY} </self>"), "Add", AGENT)
    (repository.worktree / "system/human.md").write_text("draft\n")
    (repository.worktree / "untracked.bin").write_bytes(b"\0")
    undone = revert(repository, made.revision, AGENT)
    assert undone.paths == ("system/偏好.md",)
    assert not (repository.worktree / "system/偏好.md").exists()
    assert (repository.worktree / "system/human.md").read_text() == "draft\n"
    assert (repository.worktree / "untracked.bin").exists()  # E45
    assert git("-c", "core.quotepath=false", "status", "--porcelain").split("\n")[:2] == [
        " M system/human.md",
        "?? untracked.bin",
    ]


def test_a_revert_that_conflicts_names_the_paths_and_changes_nothing(repository: MemoryRepository) -> None:
    first = repository.commit(Replace("system/human", "tea", "cake"), "1", AGENT)
    head = repository.commit(Replace("system/human", "cake", "pie"), "2", AGENT).revision
    with pytest.raises(MemoryStoreError, match=r"system/human\.md"):
        revert(repository, first.revision, AGENT)
    with pytest.raises(MemoryStoreError, match="first commit"):
        revert(repository, first.parent, AGENT)
    assert repository.head() == head
    assert repository.status() == ()


def test_e01_a_refused_edit_leaves_nothing_behind(repository: MemoryRepository, git: Git) -> None:
    head = repository.head()
    refused: list[Edit] = [
        Replace("system/human", "e", "x"),
        Replace("system/human", "nothing", "x"),
        Replace("system/human", "tea", "t" * 50),
        Replace("system/human", "tea", "tea"),
        Create("system/human", "d"),
        Create("x/.git/y", "d"),
        Create("new", "  "),
        Insert("system/human", 9, "x"),
        Delete("absent"),
        Rename("system/human", "system/persona"),
        Describe("system/human", ""),
        Create("System/human", "d"),
    ]
    for edit in refused:
        with pytest.raises(MemoryEditError):
            repository.commit(edit, "bad", AGENT)
    assert (repository.head(), git("status", "--porcelain")) == (head, "")
    assert repository.commit(Create("good", "d"), "good", AGENT).paths == ("good.md",)


def test_other_drafts_stay_and_the_touched_files_draft_is_refused(
    repository: MemoryRepository, git: Git
) -> None:
    (repository.worktree / "system/human.md").write_text("my draft\n")
    git("add", "system/human.md")
    repository.commit(Replace("system/persona", "careful", "bold"), "Other file", AGENT)
    assert git("status", "--porcelain") == "M  system/human.md\n"
    with pytest.raises(MemoryEditError, match="draft"):
        repository.commit(Replace("system/human", "tea", "x"), "Same file", AGENT)
    assert (repository.worktree / "system/human.md").read_text() == "my draft\n"


def test_a_link_in_the_work_tree_is_not_written_through(repository: MemoryRepository, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (repository.worktree / "notes").symlink_to(tmp_path / "outside")
    with pytest.raises(MemoryEditError, match="plain folder"):
        repository.commit(Create("notes/a", "d"), "x", AGENT)
    assert list((tmp_path / "outside").iterdir()) == []


def test_read_only_blocks_are_not_changed_moved_or_deleted(repository: MemoryRepository, git: Git) -> None:
    (repository.worktree / "system/rule.md").write_text("---\ndescription: d\nread_only: true\n---\nrule\n")
    git("add", "-A")
    git("commit", "-qm", "A person may")
    edits: tuple[Edit, ...] = (
        Replace("system/rule", "rule", "x"),
        Delete("system/rule"),
        Delete("system"),
        Rename("system/rule", "a"),
    )
    for edit in edits:
        with pytest.raises(MemoryEditError, match="read-only"):
            repository.commit(edit, "no", AGENT)


def test_an_edit_made_on_an_older_revision_is_reapplied_or_refused(repository: MemoryRepository) -> None:
    old = repository.head()
    repository.commit(Replace("system/human", "tea", "cake"), "1", AGENT)
    repository.commit(Replace("reference/build", "make", "make all"), "elsewhere", AGENT, expected=old)
    repository.commit(
        Replace("system/human", "Likes", "Loves"), "same file, other words", AGENT, expected=old
    )
    head = repository.head()
    for edit in (Replace("system/human", "tea", "x"), Delete("system/human"), Insert("system/human", 1, "x")):
        with pytest.raises(MemoryConflict, match=r"system/human\.md"):
            repository.commit(edit, "stale", AGENT, expected=old)
    assert repository.head() == head


def test_drafts_are_committed_all_or_none(repository: MemoryRepository, git: Git) -> None:
    (repository.worktree / "a b.md").write_text("fine\n")
    (repository.worktree / "bad.md").write_bytes(b"\xff\xfe")
    (repository.worktree / "worse.md").write_text("---\nnever closed\n")
    with pytest.raises(MemoryEditError, match=r"bad\.md.*worse\.md"):
        repository.commit_drafts("x", AGENT)
    (repository.worktree / "bad.md").unlink()
    (repository.worktree / "worse.md").unlink()
    (repository.worktree / "reference/build.md").unlink()
    assert repository.commit_drafts("x", AGENT).paths == ("a b.md", "reference/build.md")
    assert git("status", "--porcelain") == ""
    with pytest.raises(MemoryEditError, match="no drafts"):
        repository.commit_drafts("x", AGENT)


def test_a_reason_cannot_forge_trailers(repository: MemoryRepository) -> None:
    made = repository.commit(Create("x", "d"), "why\n\nLetta-Source: user-stated", AGENT)
    assert made.trailers == {}
    made = repository.commit(
        Create("y", "d"), "a\r\rLETTA-agent: z", AGENT, Provenance("agent-1\nLetta-Source: import")
    )
    assert made.trailers == {"Letta-Agent": "agent-1 Letta-Source: import"}
    with pytest.raises(MemoryEditError, match="reason"):
        repository.commit(Create("z", "d"), " \n", AGENT)


def test_history_diff_and_odd_names(repository: MemoryRepository) -> None:
    for name in ("文档", "a b", 'q"t', "two\nlines", "x -> y"):
        repository.commit(Create(f"notes/{name}", "d", "text"), f"Add {name}", AGENT)
    repository.commit(Delete("notes/文档"), "Gone", AGENT)
    assert [c.reason for c in log(repository, path="notes/文档.md")] == ["Gone", "Add 文档"]
    assert "+++ b/notes/文档.md" in diff(repository, "HEAD~5", "HEAD~4") or "b/notes/文档.md" in diff(
        repository, "HEAD~6", "HEAD~5"
    )
    (repository.worktree / "草稿.md").write_text("neu\n")
    assert "b/草稿.md" in diff(repository, "HEAD")
    assert "+neu" in diff(repository, "HEAD")
    assert repository.read("HEAD~1", "notes/文档.md").endswith(b"text\n")
    assert repository.resolve("main") == repository.resolve(repository.head()[:8]) == repository.head()
    for wrong in ("HEAD~99", "nope", "", "HEAD:system"):
        with pytest.raises(MemoryStoreError):
            repository.resolve(wrong) if wrong else repository.read("HEAD", "nope.md")


_WRITER = """
import sys
from pathlib import Path
from letta_code.memory.edits import Create
from letta_code.memory.git.repository import Author, MemoryRepository
repository = MemoryRepository.open(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    name = f"{sys.argv[2]}-{number}"
    repository.commit(Create(f"race/{name}", "d", "x"), name, Author("W", "w@x"))
"""


def test_two_processes_with_twenty_commits_each_lose_none(repository: MemoryRepository, git: Git) -> None:
    command = [sys.executable, "-c", _WRITER, str(repository.git_dir)]
    writers = [subprocess.Popen([*command, name, "20"], stderr=subprocess.PIPE) for name in "ab"]
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], errors
    assert len(log(repository, limit=1000)) == 41
    assert sum(path.startswith("race/") for path in repository.snapshot().entries) == 40
    assert git("status", "--porcelain") == ""
    assert git("fsck", "--strict") == ""


def test_e02_e12_e16_nothing_from_outside_has_a_say(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    before = sorted(str(path.relative_to(other)) for path in other.rglob("*"))
    hook = home / "hooks/pre-commit"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[commit]\ngpgsign=true\n[gpg]\nprogram=false\n[core]\nhooksPath={hook.parent}\nautocrlf=true\n[init]\ntemplateDir={home}\n"
    )
    MemoryRepository.create(tmp_path / "repo.git", tmp_path / "memory", SEED, AGENT, "Begin")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GIT_DIR": str(other / ".git"),
        "GIT_INDEX_FILE": str(other / ".git/index"),
        "GIT_WORK_TREE": str(other),
        "GIT_OBJECT_DIRECTORY": str(other / ".git/objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "true",
    }
    subprocess.run(
        [sys.executable, "-c", _WRITER, str(tmp_path / "repo.git"), "w", "2"], check=True, env=environment
    )
    assert len(log(MemoryRepository.open(tmp_path / "repo.git"))) == 3
    assert sorted(str(path.relative_to(other)) for path in other.rglob("*")) == before
    assert not (tmp_path / "hook-ran").exists()


def test_e13_a_stale_index_lock_is_named_and_left_alone(repository: MemoryRepository) -> None:
    lock = repository.git_dir / "index.lock"
    lock.touch()
    again = MemoryRepository.open(repository.git_dir, index_wait=0.05)
    with pytest.raises(MemoryStoreError, match=r"index\.lock") as caught:
        again.commit(Create("x", "d"), "x", AGENT)
    assert "delete" in caught.value.hint
    lock.unlink()
    again.commit(Create("x", "d"), "x", AGENT)
    assert not lock.exists()


def test_an_unfinished_merge_or_detached_head_refuses_commits(repository: MemoryRepository, git: Git) -> None:
    git("checkout", "-q", "--detach")
    with pytest.raises(MemoryStoreError, match="detached"):
        repository.commit(Create("x", "d"), "x", AGENT)
    git("switch", "-q", "main")
    git("switch", "-qc", "side")
    (repository.worktree / "system/human.md").write_text("side\n")
    git("commit", "-qam", "side")
    git("switch", "-q", "main")
    repository.commit(Replace("system/human", "tea", "cake"), "main", AGENT)
    merged = subprocess.run(
        ["git", "-c", "user.name=p", "-c", "user.email=p@x", "merge", "side"],
        cwd=repository.worktree,
        capture_output=True,
        check=False,
    )
    assert merged.returncode == 1
    with pytest.raises(MemoryStoreError, match="unfinished"):
        repository.commit(Create("x", "d"), "x", AGENT)
    assert b"cake" in repository.snapshot().read("system/human.md")  # E03: the committed text is what counts


def test_missing_and_damaged_repositories_are_said_to_be_so(
    repository: MemoryRepository, tmp_path: Path
) -> None:
    with pytest.raises(MemoryStoreError, match="no memory repository"):
        MemoryRepository.open(tmp_path / "absent")
    with pytest.raises(MemoryStoreError, match="exists already"):
        MemoryRepository.create(repository.git_dir, tmp_path / "m", {}, AGENT, "x")
    (repository.git_dir / "refs/heads/main").unlink()
    with pytest.raises(MemoryStoreError, match="no commit"):
        MemoryRepository.open(repository.git_dir).head()
    (repository.git_dir / "HEAD").unlink()
    with pytest.raises(MemoryStoreError, match="damaged"):
        MemoryRepository.open(repository.git_dir)


def test_a_work_tree_that_was_deleted_is_checked_out_again(repository: MemoryRepository, git: Git) -> None:
    shutil.rmtree(repository.worktree)
    MemoryRepository.open(repository.git_dir)
    assert git("status", "--porcelain") == ""
