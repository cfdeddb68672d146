"""What can go wrong under a writer: a bounded wait, one line with the remedy, and nothing is lost."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from letta_code.errors import LettaError, MemoryStoreError
from letta_code.memory.edits import Create, Put, Replace
from letta_code.memory.git.repository import MemoryCommit, MemoryRepository, Provenance
from letta_code.memory.git.review import hold
from letta_code.memory.git.undo import restore, revert
from tests.memory.conftest import AGENT, SEED, Git
from tests.memory.test_writers import everything


def put(repository: MemoryRepository, lines: int = 1) -> MemoryCommit:
    edit = Put({"system/human.md": b"new\n" * lines, "made.md": b"x\n"})
    return repository.commit(edit, "why", AGENT)


def write(
    repository: MemoryRepository,
    before: Callable[[], object] = lambda: None,
    work: Callable[[MemoryRepository], object] = put,
) -> str:
    """Do `work` in another process, which does `before` first; what it says."""

    def child() -> str:
        try:
            before()
            work(MemoryRepository.open(repository.git_dir, index_wait=0.05))
        except LettaError as error:
            return f"{type(error).__name__}|{error.message}|{error.hint}\n"
        return ""

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, child().encode())
            os._exit(0)
        finally:
            os.write(writing, traceback.format_exc().encode())
            os._exit(1)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0, said
    return said


@contextmanager
def nothing_changes(repository: MemoryRepository) -> Iterator[None]:
    """Everything is as before. The file that our lock is may be there already."""
    (repository.git_dir / "letta.lock").touch()
    before = everything(repository)
    yield
    assert everything(repository) == before


def end_at(step: int, number: int, work: Callable[[], object]) -> int:
    """Do `work` in a process that gets the signal `number` at the n-th step that Python takes on the disk;
    its exit code."""
    child = os.fork()
    if child == 0:
        counted = 0

        def count(event: str, _: object) -> None:
            nonlocal counted
            counted += event in _STEPS
            if counted == step and event in _STEPS:
                os.kill(os.getpid(), number)

        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.addaudithook(count)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def commit_and_end(git_dir: Path, step: int, number: int) -> int:
    """The same for a commit of three files."""
    repository = MemoryRepository.open(git_dir)
    edit = Put({"system/human.md": b"new\n", "reference/build.md": None, "deep/er/made.md": b"x\n"})
    return end_at(step, number, lambda: repository.commit(edit, "why", AGENT))


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
        if step % 4 == 0 or ended == 0:
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
        step += 2
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


def revert_first(repository: MemoryRepository) -> MemoryCommit:
    return revert(repository, "HEAD~1", AGENT)


def restore_all(repository: MemoryRepository) -> MemoryCommit:
    return restore(repository, "", "HEAD~2", "Back", AGENT)


def hold_one(repository: MemoryRepository) -> MemoryCommit:
    return hold(repository, Create("held", "d"), "why", AGENT, Provenance(source="inferred"))


@pytest.mark.parametrize(
    "work",
    [partial(put, lines=10_000), revert_first, restore_all, hold_one],
    ids=["put", "revert", "restore", "hold"],
)
def test_a_disk_that_is_full_changes_nothing(
    repository: MemoryRepository, git: Git, work: Callable[[MemoryRepository], object]
) -> None:
    lines = "".join(f"{number}\n" for number in range(9))
    for text in (lines, lines.replace("1", "one"), lines.replace("1", "one").replace("8", "eight")):
        repository.commit(Put({"reference/build.md": text.encode()}), "Numbers", AGENT)
    for size in (0, 20, 100, 20_000) if isinstance(work, partial) else (0, 20):
        with nothing_changes(repository):
            limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
            said = write(repository, limit, work)
            assert said.startswith(("MemoryStoreError|cannot write", "StorageError|cannot")), (size, said)
            assert "space" in said
            assert said.count("\n") == 1
    assert git("status", "--porcelain") == ""
    assert git("fsck", "--strict", "--no-dangling") == ""
    assert write(repository, work=work) == ""


def as_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


@pytest.fixture
def public() -> Iterator[MemoryRepository]:
    """A memory in a folder that other users can reach, and own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = MemoryRepository.create(Path(folder, "repo.git"), Path(folder, "memory"), SEED, AGENT, "Begin")
        (made.git_dir / "letta.lock").touch()
        _give(Path(folder), 65534)
        yield made


def test_a_folder_that_cannot_be_written(public: MemoryRepository) -> None:
    for folder in (public.worktree / "system", public.worktree, public.git_dir):
        mode = folder.stat().st_mode
        folder.chmod(0o500)
        with nothing_changes(public):
            said = write(public, as_nobody)
            assert "Permission denied" in said
            assert "owner" in said
            assert said.count("\n") == 1
        folder.chmod(mode)
    public.git_dir.parent.chmod(0)
    assert "cannot be read: Permission denied|" in write(public, as_nobody)
    public.git_dir.parent.chmod(0o755)
    assert write(public, as_nobody) == ""


def test_e15_a_repository_of_another_user(public: MemoryRepository) -> None:
    if os.geteuid() != 0:
        pytest.fail("needs to be root, to give files to another user")
    home = public.git_dir.parent / "home"
    home.mkdir()
    _give(home, 65534)
    for part in (public.git_dir, public.worktree):
        _give(part, 12345)

    def at_home() -> None:
        as_nobody()
        os.environ["HOME"] = str(home)

    with nothing_changes(public):
        said = write(public, at_home)
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


def test_a_work_tree_whose_return_was_interrupted_at_any_step_comes_back_whole(
    repository: MemoryRepository, git: Git
) -> None:
    step, ended = 0, -1
    while ended != 0:
        step += 1
        shutil.rmtree(repository.worktree)
        ended = end_at(step, signal.SIGKILL, lambda: MemoryRepository.open(repository.git_dir))
        assert MemoryRepository.open(repository.git_dir).status() == ()
        assert git("status", "--porcelain") == ""
        assert {path.name for path in repository.git_dir.parent.iterdir()} == {"repo.git", "memory"}
    assert step > 4
    shutil.rmtree(repository.worktree)
    repository.worktree.mkdir()
    assert MemoryRepository.open(repository.git_dir).status() == ()


def test_a_file_system_without_hard_links_will_do(repository: MemoryRepository, git: Git) -> None:
    def no_links() -> None:
        def refuse(event: str, _: object) -> None:
            if event == "os.link":
                raise OSError(errno.EPERM, "Operation not permitted")

        sys.addaudithook(refuse)

    assert write(repository, no_links) == ""
    assert git("status", "--porcelain") == ""
    assert not (repository.git_dir / "index.lock").exists()
    (repository.worktree / "made.md").write_text("x\ny\n")
    assert "made.md: has an uncommitted draft" in write(
        repository, no_links, lambda memory: memory.commit(Put({"made.md": b"z\n"}), "why", AGENT)
    )
    (repository.git_dir / "index.lock").touch()
    assert "memory is locked by" in write(repository, no_links)
    (repository.git_dir / "index.lock").write_bytes(b"letta-code\n")
    assert write(repository, no_links, lambda memory: memory.commit(Create("n", "d"), "why", AGENT)) == ""


def test_e09_two_sessions_start_at_once(tmp_path: Path) -> None:
    made = MemoryRepository.create(tmp_path / "repo.git", tmp_path / "memory", SEED, AGENT, "Begin")
    shutil.rmtree(made.worktree)
    with ThreadPoolExecutor() as threads:
        said = list(threads.map(lambda _: write(made), range(3)))
    assert sorted(words.split("|")[0] for words in said) == ["", "MemoryEditError", "MemoryEditError"]


def _give(folder: Path, owner: int) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner, owner, follow_symlinks=False)
