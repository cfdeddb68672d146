"""Two machines, one memory: what a sync joins, what it refuses, and what stays as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.memory.edits import Create, Delete, Rename, Replace
from letta_code.memory.git.log import log
from letta_code.memory.git.merge import Conflict, Keep
from letta_code.memory.git.remote import set_remote
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.sync import SyncReport, sync
from letta_code.memory.history import Author
from letta_code.memory.rules import PERSON
from letta_code.memory.transport import Transport

LINES = "".join(f"line {number}\n" for number in range(12))
SEED = {
    "system/persona.md": "---\ndescription: Who I am.\n---\nI am careful.\n",
    "system/human.md": f"---\ndescription: The person.\nlimit: 400\n---\n{LINES}",
    "reference/build.md": "---\ndescription: How to build.\n---\nmake\n",
}
KEEPS: tuple[Keep, ...] = ("ours", "theirs", "both")


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


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return make_bare(tmp_path / "shared.git")


@pytest.fixture(scope="module")
def in_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two machines in step, and what they share."""
    folder = tmp_path_factory.mktemp("in-step")
    bare = make_bare(folder / "shared.git")
    desk, laptop = Machine(folder / "desk", bare), Machine(folder / "laptop", bare)
    assert desk.sync().sent == 1
    assert laptop.sync().outcome == "synced"
    assert desk.memory.head() == laptop.memory.head()
    return folder


@pytest.fixture
def two(tmp_path: Path, in_step: Path) -> tuple[Machine, Machine]:
    """Two machines in step, which share `shared.git`."""
    shutil.copytree(in_step, tmp_path, dirs_exist_ok=True)
    for name in ("desk", "laptop"):
        config = tmp_path / name / "repo.git" / "config"
        config.write_text(config.read_text().replace(str(in_step), str(tmp_path)))
    bare = tmp_path / "shared.git"
    return Machine(tmp_path / "desk", bare), Machine(tmp_path / "laptop", bare)


def sides(conflict: Conflict) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    assert conflict.ours is not None
    assert conflict.theirs is not None
    return conflict.ours.texts, conflict.theirs.texts


def test_what_both_learned_elsewhere_is_merged_and_nothing_is_lost(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    first = desk.replace("system/human.md", "line 0\n", "Likes tea.\n")
    desk.create("projects/one.md", "pnpm\n")
    second = laptop.replace("system/human.md", "line 11\n", "Lives in Bern.\n")
    laptop.memory.commit(Delete("reference/build.md"), "Gone", laptop.author)
    assert desk.sync().sent == 2
    report = laptop.sync()
    assert (report.outcome, report.received, report.sent, report.merged) == ("synced", 2, 3, True)
    assert desk.sync().received == 3
    for machine in two:
        text = machine.text("system/human.md")
        assert text.startswith("---\ndescription: The person.\nlimit: 400\n---\nLikes tea.\nline 1\n")
        assert text.endswith("line 10\nLives in Bern.\n")
        assert set(machine.memory.snapshot().entries) == {
            "projects/one.md",
            "system/human.md",
            "system/persona.md",
        }
        assert machine.memory.status() == ()
        assert machine.git("fsck", "--strict", "--no-dangling") == ""
    merge = log(desk.memory, 1)[0]
    assert merge.trailers == {"Letta-Agent": "agent-1"}
    assert merge.author_name == "laptop"
    assert {first, second} <= {commit.revision for commit in log(desk.memory)}
    assert len(desk.git("log", "-1", "--format=%P").split()) == 2
    assert laptop.sync() == SyncReport("up-to-date", desk.memory.head())


def test_a_conflict_changes_nothing_and_shows_both_texts(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    desk.replace("system/human.md", "line 5\n", "Likes tea.\n", "She said tea")
    desk.sync()
    laptop.replace("system/human.md", "line 5\n", "Likes mate.\n", "He said mate")
    laptop.replace("system/persona.md", "careful", "bold")
    (laptop.memory.worktree / "draft.md").write_text("mine")
    before = laptop.whole()
    report = laptop.sync()
    assert laptop.whole() == before
    assert report.outcome == "conflict"
    (conflict,) = report.conflicts
    assert conflict.path == "system/human.md"
    assert sides(conflict) == (("Likes mate.",), ("Likes tea.",))
    assert conflict.ours is not None
    assert conflict.theirs is not None
    assert conflict.ours.commit is not None
    assert conflict.theirs.commit is not None
    assert (conflict.ours.commit.author_name, conflict.ours.commit.reason) == ("laptop", "He said mate")
    assert (conflict.theirs.commit.author_name, conflict.theirs.commit.reason) == ("desk", "She said tea")
    assert laptop.sync().outcome == "conflict"


@pytest.mark.parametrize("keep", KEEPS)
def test_one_word_resolves_a_conflict_and_only_that(two: tuple[Machine, Machine], keep: Keep) -> None:
    desk, laptop = two
    desk.replace("system/human.md", "line 5\n", "Likes tea.\n")
    desk.replace("system/human.md", "line 0\n", "From the desk.\n")
    desk.sync()
    laptop.replace("system/human.md", "line 5\n", "Likes mate.\n")
    laptop.replace("system/human.md", "line 11\n", "From the laptop.\n")
    report = laptop.sync(keep)
    assert report.settled == ("system/human.md",)
    assert desk.sync().received == 3
    kept = {
        "ours": "Likes mate.\n",
        "theirs": "Likes tea.\n",
        "both": "Likes mate.\nLikes tea.\n",
    }[keep]
    lines = LINES.replace("line 0\n", "From the desk.\n").replace("line 11\n", "From the laptop.\n")
    expected = "---\ndescription: The person.\nlimit: 400\n---\n" + lines.replace("line 5\n", kept)
    assert [machine.text("system/human.md") for machine in two] == [expected, expected]
    assert "system/human.md" in log(laptop.memory, 1)[0].reason


def test_both_has_one_front_matter_in_which_ours_holds(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    for machine, limit, description in ((desk, 500, "Desk."), (laptop, 600, "Laptop.")):
        file = machine.memory.worktree / "system/persona.md"
        file.write_text(f"---\ndescription: {description}\nlimit: {limit}\n---\nFrom {machine.name}.")
        machine.memory.commit_drafts("Whole", machine.author)
    desk.sync()
    laptop.sync("both")
    expected = "---\ndescription: Laptop.\nlimit: 600\n---\nFrom laptop.\nFrom desk."
    assert laptop.text("system/persona.md") == expected


def test_a_file_that_both_made_and_one_that_is_no_text(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    for machine in two:
        machine.create("notes.md", f"shared\nFrom {machine.name}.\n")
        (machine.memory.worktree / "a.bin").write_bytes(b"\0" + machine.name.encode())
        machine.memory.commit_drafts("Bytes", machine.author, overrides=PERSON)
    desk.sync()
    assert {conflict.path for conflict in laptop.sync().conflicts} == {"notes.md", "a.bin"}
    before = laptop.whole()
    with pytest.raises(MemoryEditError, match=r"a\.bin.*not text"):
        laptop.sync("both")
    assert laptop.whole() == before
    laptop.sync("ours")
    assert laptop.memory.snapshot().read("a.bin") == b"\0laptop"
    assert laptop.text("notes.md").endswith("shared\nFrom laptop.\n")


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("deleter", ["desk", "laptop"])
def test_deleted_on_one_side_and_edited_on_the_other(
    two: tuple[Machine, Machine], keep: Keep, deleter: str
) -> None:
    desk, laptop = two
    for machine in two:
        if machine.name == deleter:
            machine.memory.commit(Delete("reference/build.md"), "Gone", machine.author)
        else:
            machine.replace("reference/build.md", "make", "ninja")
    desk.sync()
    (conflict,) = laptop.sync().conflicts
    texts = ("---\ndescription: How to build.\n---\nninja",)
    assert sides(conflict) == ((None, texts) if deleter == "laptop" else (texts, None))
    laptop.sync(keep)
    stays = keep == "both" or (keep == "ours") != (deleter == "laptop")
    assert ("reference/build.md" in laptop.memory.snapshot().entries) == stays
    assert (laptop.memory.worktree / "reference/build.md").exists() == stays
    assert laptop.memory.status() == ()


def test_an_edit_follows_a_rename(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    desk.memory.commit(Rename("system/human.md", "system/ada.md"), "Her name", desk.author)
    desk.sync()
    laptop.replace("system/human.md", "line 3\n", "Likes mate.\n")
    assert laptop.sync().merged
    assert "Likes mate.\n" in laptop.text("system/ada.md")
    assert "system/human.md" not in laptop.memory.snapshot().entries
    assert laptop.memory.status() == ()


@pytest.mark.parametrize("keep", KEEPS)
def test_a_file_with_two_new_names(two: tuple[Machine, Machine], keep: Keep) -> None:
    desk, laptop = two
    desk.memory.commit(Rename("system/human.md", "system/ada.md"), "Her name", desk.author)
    desk.sync()
    laptop.memory.commit(Rename("system/human.md", "system/user.md"), "Plain", laptop.author)
    before = laptop.whole()
    assert {conflict.path for conflict in laptop.sync().conflicts} == {"system/ada.md", "system/user.md"}
    assert laptop.whole() == before
    laptop.sync(keep)
    names = {"ours": {"user"}, "theirs": {"ada"}, "both": {"ada", "user"}}[keep]
    found = {path for path in laptop.memory.snapshot().entries if path.startswith("system/")}
    assert found == {"system/persona.md", *(f"system/{name}.md" for name in names)}
    assert laptop.memory.status() == ()


def test_drafts_in_the_way_are_all_named_and_others_survive(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    desk.replace("system/human.md", "line 5", "Likes tea.")
    desk.replace("system/persona.md", "careful", "bold")
    desk.create("new.md", "theirs\n")
    desk.sync()
    drafts = {"system/human.md": "x\n", "new.md": "mine\n", "reference/build.md": "other\n"}
    for path, text in drafts.items():
        (laptop.memory.worktree / path).write_text(text)
    before = laptop.whole()
    with pytest.raises(MemoryEditError) as refused:
        laptop.sync()
    assert "new.md, system/human.md" in refused.value.message
    assert "build" not in refused.value.message
    assert laptop.whole() == before
    (laptop.memory.worktree / "new.md").unlink()
    laptop.git("restore", "system/human.md")
    laptop.sync()
    assert (laptop.memory.worktree / "reference/build.md").read_text() == "other\n"
    assert [draft.path for draft in laptop.memory.status()] == ["reference/build.md"]


def test_what_would_break_the_rules_when_merged_is_refused(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    desk.replace("system/human.md", "line 0\n", "a" * 200 + "\n")
    desk.create("notes/Tea.md", "x\n")
    desk.sync()
    laptop.replace("system/human.md", "line 11\n", "b" * 200 + "\n")
    laptop.create("notes/tea.md", "y\n")
    before = laptop.whole()
    with pytest.raises(MemoryEditError) as refused:
        laptop.sync()
    assert "limit is 400" in refused.value.message
    assert "only in case" in refused.value.message
    assert laptop.whole() == before
    laptop.memory.commit(Rename("notes/tea.md", "notes/green.md"), "Clear", laptop.author)
    laptop.replace("system/human.md", "b" * 200 + "\n", "b\n")
    assert laptop.sync().merged


def test_what_the_remote_has_wrong_is_told_and_taken(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    (desk.memory.worktree / "system/human.md").write_text("---\nlimit: 3\n---\ntoo long\n")
    (desk.memory.worktree / "bad.md").write_text("---\n: [\n---\n")
    desk.git("add", "-A")
    desk.git("commit", "-q", "--no-verify", "-m", "By hand")
    desk.sync()
    report = laptop.sync()
    assert laptop.memory.head() == desk.memory.head()
    assert len(report.problems) == 2
    assert any("limit is 3" in problem for problem in report.problems)
    assert laptop.sync().outcome == "up-to-date"


def test_links_and_names_that_leave_memory_do_not_come_in(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    (desk.memory.worktree / "link.md").symlink_to("/etc/passwd")
    desk.git("add", "-A")
    desk.git("commit", "-q", "--no-verify", "-m", "A link")
    desk.sync()
    before = laptop.whole()
    with pytest.raises(MemoryEditError, match="symbolic link"):
        laptop.sync()
    assert laptop.whole() == before


def unrelated(bare: Path, tmp_path: Path, files: dict[str, str]) -> str:
    """Move the remote's main to another root; its commit."""
    other = Machine(tmp_path / "other", bare, files)
    other.git("push", "-q", "--force", "origin", "main")
    return other.memory.head()


def test_e04_a_rewritten_remote_replaces_nothing(tmp_path: Path, bare: Path) -> None:
    files = {f"facts/{number}.md": f"---\ndescription: Fact.\n---\n{number}\n" for number in range(79)}
    desk = Machine(tmp_path / "desk", bare, files)
    desk.sync()
    synced = desk.memory.head()
    desk.create("unsent.md", "only here\n")
    theirs = unrelated(bare, tmp_path, SEED)
    before = desk.whole()
    for _ in range(2):
        with pytest.raises(MemoryStoreError, match="rewritten") as refused:
            desk.sync()
        assert desk.whole() == before
    refs = dict(
        line.split()
        for line in desk.git("for-each-ref", "refs/rescue", "--format=%(refname) %(objectname)").splitlines()
    )
    assert sorted(refs.values()) == sorted([synced, desk.memory.head()])
    assert all(name.removeprefix("refs/") in refused.value.hint for name in refs)
    assert "--adopt" in refused.value.hint
    local = desk.memory.head()
    report = desk.sync(adopt=True)
    assert desk.memory.head() == theirs
    assert set(desk.memory.snapshot().entries) == set(SEED)
    assert len(desk.memory.snapshot(report.rescued).entries) == 80
    assert desk.memory.resolve(report.rescued) == local
    assert desk.memory.status() == ()
    assert desk.sync().outcome == "up-to-date"


def test_a_remote_that_lost_commits_was_rewritten_as_well(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    laptop.create("new.md", "x\n")
    laptop.sync()
    subprocess.run(["git", "update-ref", "refs/heads/main", desk.memory.head()], cwd=desk.remote, check=True)
    with pytest.raises(MemoryStoreError, match="rewritten"):
        laptop.sync()
    laptop.git("push", "-q", "--force", "origin", "main")
    assert laptop.sync().outcome == "up-to-date"
    assert desk.sync().received == 1


def test_another_memory_is_not_joined(tmp_path: Path, bare: Path) -> None:
    desk = Machine(tmp_path / "desk", bare)
    desk.create("mine.md", "x\n")
    unrelated(bare, tmp_path, {"theirs.md": "y\n"})
    before = desk.whole()
    with pytest.raises(MemoryStoreError, match="no history in common"):
        desk.sync()
    assert desk.whole() == before


def test_an_untouched_seed_gives_way_but_its_words_are_kept(tmp_path: Path, bare: Path) -> None:
    laptop = Machine(tmp_path / "laptop", bare)
    seed = laptop.memory.head()
    theirs = unrelated(bare, tmp_path, {"theirs.md": "y\n"})
    (laptop.memory.worktree / "draft.md").write_text("mine")
    with pytest.raises(MemoryStoreError, match="no history in common"):
        laptop.sync()
    (laptop.memory.worktree / "draft.md").unlink()
    report = laptop.sync()
    assert laptop.memory.head() == theirs
    assert laptop.memory.resolve(report.rescued) == seed


def test_a_remote_whose_branch_has_another_name(tmp_path: Path) -> None:
    bare = tmp_path / "old.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "master", str(bare)], check=True)
    desk, laptop = Machine(tmp_path / "desk", bare), Machine(tmp_path / "laptop", bare)
    desk.git("push", "-q", "origin", "main:master")
    desk.create("new.md", "x\n")
    desk.sync()
    laptop.sync()
    assert laptop.memory.head() == desk.memory.head()
    branches = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname)"], cwd=bare, capture_output=True, text=True, check=True
    )
    assert branches.stdout.split() == ["refs/heads/master"]


def test_a_side_branch_is_not_sent_as_main(two: tuple[Machine, Machine]) -> None:
    desk, _ = two
    desk.git("switch", "-q", "-c", "idea")
    desk.create("idea.md", "x\n")
    with pytest.raises(MemoryStoreError, match="on the branch idea") as refused:
        desk.sync()
    assert "git switch main" in refused.value.hint
    desk.git("push", "-q", "origin", "idea")
    assert desk.sync().outcome == "up-to-date"


def test_a_secret_that_came_is_told_and_masked(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    key = "AKIA" + "Q3EGRIZN7YHTBMWX"
    (desk.memory.worktree / "keys.md").write_text(f"aws_access_key_id = {key}\n")
    desk.git("add", "-A")
    desk.git("commit", "-q", "--no-verify", "-m", "By hand")
    desk.sync()
    (problem,) = laptop.sync().problems
    assert "keys.md" in problem
    assert key not in problem
    assert laptop.memory.head() == desk.memory.head()


def together(*works: Callable[[], None]) -> None:
    """Run all at once; what fails fails here."""
    with ThreadPoolExecutor(len(works)) as pool:
        for running in [pool.submit(work) for work in works]:
            running.result()


def test_machines_that_sync_at_once_lose_nothing(tmp_path: Path, bare: Path) -> None:
    machines = [Machine(tmp_path / f"m{number}", bare) for number in range(3)]
    for machine in machines:
        machine.sync()

    def work(machine: Machine) -> Callable[[], None]:
        def run() -> None:
            for number in range(3):
                machine.create(f"{machine.name}/{number}.md", "x\n")
                machine.sync()

        return run

    together(*(work(machine) for machine in machines))
    for machine in machines:
        machine.sync()
    expected = {*SEED, *(f"m{m}/{number}.md" for m in range(3) for number in range(3))}
    for machine in machines:
        machine.sync()
        assert set(machine.memory.snapshot().entries) == expected
        assert machine.git("fsck", "--strict", "--no-dangling") == ""


def test_a_writer_goes_on_while_memory_syncs(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    for number in range(4):
        desk.create(f"desk/{number}.md", "x\n")
    writer = MemoryRepository.open(laptop.memory.git_dir)

    def write() -> None:
        for number in range(12):
            writer.commit(Create(f"laptop/{number}.md", "About.", "x\n"), "New", laptop.author)

    def syncs() -> None:
        for _ in range(3):
            desk.sync()
            laptop.sync()

    together(write, syncs)
    laptop.sync()
    desk.sync()
    assert desk.memory.head() == laptop.memory.head()
    assert len(desk.memory.snapshot().entries) == len(SEED) + 16
    assert laptop.memory.status() == ()
