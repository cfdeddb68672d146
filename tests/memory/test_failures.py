"""What can go wrong under a writer: a bounded wait, one line with the remedy, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from letta_code.errors import MemoryStoreError
from letta_code.memory.edits import Create, Put, Replace
from letta_code.memory.git.repository import MemoryRepository
from tests.memory.conftest import AGENT, SEED, Git
from tests.memory.test_writers import everything

_WRITE = """
import sys
from pathlib import Path
from letta_code.errors import LettaError
from letta_code.memory.edits import Put
from letta_code.memory.git.repository import Author, MemoryRepository
{before}
try:
    repository = MemoryRepository.open(Path(sys.argv[1]), index_wait=0.05)
    edit = Put({{"system/human.md": b"new\\n" * {lines}, "made.md": b"x\\n"}})
    repository.commit(edit, "why", Author("A", "a@x"))
except LettaError as error:
    print(type(error).__name__, error.message, error.hint, sep="|")
"""


def write(repository: MemoryRepository, before: str = "", lines: int = 1) -> str:
    """Commit in another process, which does `before` first; what it says."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITE.format(before=before, lines=lines), str(repository.git_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def nothing_changes(repository: MemoryRepository) -> Iterator[None]:
    """Everything is as before. The file that our lock is may be there already."""
    (repository.git_dir / "letta.lock").touch()
    before = everything(repository)
    yield
    assert everything(repository) == before


def commit_and_end(git_dir: Path, step: int, number: int) -> int:
    """Commit in a process that gets the signal `number` at the n-th step that Python takes on the disk; its
    exit code."""
    child = os.fork()
    if child == 0:
        counted = 0

        def count(event: str, _: object) -> None:
            nonlocal counted
            counted += event in _STEPS
            if counted == step and event in _STEPS:
                os.kill(os.getpid(), number)

        try:
            repository = MemoryRepository.open(git_dir)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.addaudithook(count)
            repository.commit(
                Put({"system/human.md": b"new\n", "reference/build.md": None, "deep/er/made.md": b"x\n"}),
                "why",
                AGENT,
            )
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


_STEPS = ("open", "os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.chmod")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_e13_a_process_that_ends_at_any_step_leaves_all_of_a_commit_or_nothing(
    repository: MemoryRepository, git: Git, tmp_path: Path, how: signal.Signals
) -> None:
    (repository.worktree / "system/persona.md").write_text("a draft\n")
    (repository.worktree / "mine.md").write_text("another\n")
    git("add", "mine.md")
    pristine = tmp_path / "pristine"
    pristine.mkdir()
    for name in ("repo.git", "memory"):
        shutil.copytree(tmp_path / name, pristine / name, symlinks=True)
    old, step, outcomes, ended = repository.head(), 0, set(), -1
    while ended != 0:
        step += 1 if how == signal.SIGKILL else 3
        shutil.rmtree(tmp_path / "repo.git")
        shutil.rmtree(tmp_path / "memory")
        for name in ("repo.git", "memory"):
            shutil.copytree(pristine / name, tmp_path / name, symlinks=True)
        ended = commit_and_end(tmp_path / "repo.git", step, how)
        if how == signal.SIGINT:
            assert not (tmp_path / "repo.git/index.lock").exists()
        healed = MemoryRepository.open(tmp_path / "repo.git")
        committed = healed.head() != old
        outcomes.add(committed)
        assert git("fsck", "--strict", "--no-dangling") == ""
        assert git("status", "--porcelain") == "A  mine.md\n M system/persona.md\n", step
        assert (healed.worktree / "system/persona.md").read_text() == "a draft\n"
        assert (healed.worktree / "mine.md").read_text() == "another\n"
        assert (healed.worktree / "deep").exists() == committed
        assert (healed.worktree / "reference/build.md").exists() != committed
        assert not (healed.git_dir / "index.lock").exists()
    assert outcomes == {True, False}
    assert step > 15


def test_a_branch_lock_that_a_dead_process_of_ours_left_is_cleared(
    repository: MemoryRepository, git: Git
) -> None:
    head, step = repository.head(), 0
    while not (repository.git_dir / "letta.landing/journal").exists():
        step += 1
        commit_and_end(repository.git_dir, step, signal.SIGKILL)
    (repository.git_dir / "refs/heads/main.lock").write_bytes(b"")
    healed = MemoryRepository.open(repository.git_dir)
    assert not (repository.git_dir / "refs/heads/main.lock").exists()
    assert (healed.head(), git("status", "--porcelain")) == (head, "")
    healed.commit(Replace("system/human", "tea", "cake"), "why", AGENT)


@pytest.mark.parametrize("name", ["index.lock", "refs/heads/main.lock"])
def test_e13_a_lock_of_another_program_is_named_with_its_age_and_left_alone(
    repository: MemoryRepository, name: str
) -> None:
    lock = repository.git_dir / name
    lock.touch()
    os.utime(lock, (0, 0))
    with nothing_changes(repository):
        for _ in range(2):
            said = write(repository)
            assert said.startswith(f"MemoryStoreError|memory is locked by {lock}, made ")
            assert " days ago|" in said
            assert "delete that file" in said
    lock.unlink()
    assert write(repository) == ""


def test_a_disk_that_is_full_changes_nothing(repository: MemoryRepository, git: Git) -> None:
    for size in (0, 100, 3_000, 20_000):
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
        with nothing_changes(repository):
            said = write(repository, limit, lines=10_000)
            assert said.startswith(("MemoryStoreError|cannot write", "StorageError|cannot")), (size, said)
            assert "space" in said
            assert said.count("\n") == 1
    assert git("status", "--porcelain") == ""
    assert git("fsck", "--strict", "--no-dangling") == ""
    assert write(repository) == ""


_AS_NOBODY = "import os; os.geteuid() == 0 and (os.setgroups([]), os.setgid(65534), os.setuid(65534))"


def test_a_folder_that_cannot_be_written(repository: MemoryRepository, tmp_path: Path) -> None:
    (repository.git_dir / "letta.lock").touch()
    _give_to_nobody(tmp_path)
    for folder in (repository.worktree / "system", repository.worktree, repository.git_dir):
        mode = folder.stat().st_mode
        folder.chmod(0o500)
        with nothing_changes(repository):
            said = write(repository, _AS_NOBODY)
            assert "Permission denied" in said
            assert "owner" in said
            assert said.count("\n") == 1
        folder.chmod(mode)
    assert write(repository, _AS_NOBODY) == ""


def test_e15_a_repository_of_another_user(repository: MemoryRepository, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("needs to be root, to give files to another user")
    home = tmp_path / "home"
    home.mkdir()
    (repository.git_dir / "letta.lock").touch()
    _give_to_nobody(tmp_path)
    for part in (repository.git_dir, repository.worktree):
        _give(part, 12345)
    _open_to_all(tmp_path)
    with nothing_changes(repository):
        said = write(repository, _AS_NOBODY + f"; os.environ['HOME'] = {str(home)!r}")
    assert "belongs to another user|give it back: chown -R 65534" in said
    assert said.count("\n") == 1
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("what", ["merge", "cherry-pick", "rebase", "revert"])
def test_e03_a_persons_unfinished_work_is_named_with_the_command_that_ends_it(
    repository: MemoryRepository, git: Git, what: str
) -> None:
    git("switch", "-qc", "side")
    (repository.worktree / "system/human.md").write_text("---\ndescription: d\n---\nside\n")
    git("commit", "-qam", "side")
    git("switch", "-q", "main")
    repository.commit(Replace("system/human", "tea", "cake"), "main", AGENT)
    repository.commit(Replace("system/human", "cake", "pie"), "main 2", AGENT)
    target = {"revert": "HEAD~1"}.get(what, "side")
    with pytest.raises(AssertionError):
        git(what, target)
    head = repository.head()
    with nothing_changes(repository):
        said = write(repository)
        assert f"|a {what} is unfinished in the memory folder" in said
        assert f"`git {what} --abort`" in said
        assert b"<<<<" not in MemoryRepository.open(repository.git_dir).snapshot().read("system/human.md")
    assert repository.head() == head
    git(what, "--abort")
    assert write(repository) == ""


def test_a_detached_head_is_named_with_the_way_back(repository: MemoryRepository, git: Git) -> None:
    git("checkout", "-q", "--detach")
    with nothing_changes(repository):
        said = write(repository)
    assert "HEAD is detached" in said
    assert "git switch main" in said


def test_a_repository_without_a_commit(repository: MemoryRepository, git: Git) -> None:
    git("update-ref", "-d", "refs/heads/main")
    assert "memory has no commit" in write(repository)
    git("-c", "core.hooksPath=/dev/null", "commit", "-qm", "Again")
    assert write(repository) == ""


def test_a_shallow_clone_works(repository: MemoryRepository, git: Git, tmp_path: Path) -> None:
    for number in range(3):
        repository.commit(Create(f"n{number}", "d"), f"n{number}", AGENT)
    known = repository.head()
    git("fetch", "-q", "--depth=2", f"file://{repository.git_dir}", "main")
    git("reflog", "expire", "--expire=now", "--all")
    again = MemoryRepository.open(repository.git_dir)
    assert (repository.git_dir / "shallow").exists()
    again.commit(Create("n4", "d"), "n4", AGENT, expected=known)
    assert git("status", "--porcelain") == ""


def test_damage_is_said_to_be_damage(repository: MemoryRepository, git: Git) -> None:
    blob = git("rev-parse", "HEAD:system/human.md").strip()
    lost = repository.git_dir / "objects" / blob[:2] / blob[2:]
    data = lost.read_bytes()
    lost.unlink()
    with nothing_changes(repository), pytest.raises(MemoryStoreError, match="damaged: object") as caught:
        MemoryRepository.open(repository.git_dir).commit(Replace("system/human", "tea", "x"), "x", AGENT)
    assert "git fsck" in caught.value.hint
    lost.write_bytes(data)
    commit = repository.head()
    (repository.git_dir / "objects" / commit[:2] / commit[2:]).unlink()
    assert "memory is damaged: commit" in write(repository)
    (repository.git_dir / "refs/heads/main").write_text("not an id\n")
    assert "MemoryStoreError|" in write(repository)
    (repository.git_dir / "HEAD").write_bytes(b"\0\0")
    assert "MemoryStoreError|" in write(repository)


def test_a_work_tree_that_is_gone_comes_back_and_one_that_moved_is_not_confused(
    repository: MemoryRepository, git: Git, tmp_path: Path
) -> None:
    (repository.worktree / "draft.md").write_text("draft\n")
    repository.worktree.rename(tmp_path / "moved")
    again = MemoryRepository.open(repository.git_dir)
    again.commit(Replace("system/human", "tea", "cake"), "x", AGENT)
    assert git("status", "--porcelain") == ""
    assert (tmp_path / "moved/draft.md").read_text() == "draft\n"


def test_e09_two_sessions_start_at_once(tmp_path: Path) -> None:
    made = MemoryRepository.create(tmp_path / "repo.git", tmp_path / "memory", SEED, AGENT, "Begin")
    shutil.rmtree(made.worktree)
    command = [sys.executable, "-c", _WRITE.format(before="", lines=1), str(made.git_dir)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate() for process in processes]
    assert all(err == b"" for _, err in said), said
    assert sorted(out.split(b"|")[0] for out, _ in said) == [b"", b"MemoryEditError", b"MemoryEditError"]


def _give_to_nobody(folder: Path) -> None:
    if os.geteuid() == 0:
        _open_to_all(folder)
        _give(folder, 65534)


def _give(folder: Path, owner: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


def _open_to_all(folder: Path) -> None:
    """Others may pass through the folders above, which pytest makes private."""
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent) != "/":
            parent.chmod(parent.stat().st_mode | 0o011)
