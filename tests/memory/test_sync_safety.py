"""What a sync refuses, and that nothing is lost: drafts, rules, rewritten remotes, others who write."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.memory.edits import Create, Rename
from letta_code.memory.git.repository import MemoryRepository
from tests.memory.machines import SEED, Machine


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


def test_what_a_person_staged_stays_staged(two: tuple[Machine, Machine]) -> None:
    desk, laptop = two
    desk.replace("system/human.md", "line 5", "Likes tea.")
    desk.sync()
    laptop.replace("system/human.md", "line 11", "Lives in Bern.")
    file = laptop.memory.worktree / "reference/build.md"
    file.write_text(SEED["reference/build.md"] + "staged\n")
    laptop.git("add", "reference/build.md")
    file.write_text(SEED["reference/build.md"] + "staged\nnot staged\n")
    staged, other = laptop.git("diff", "--cached"), laptop.git("diff")
    assert laptop.sync().merged
    assert (laptop.git("diff", "--cached"), laptop.git("diff")) == (staged, other)
    assert "+staged" in staged
    assert "+not staged" in other


@pytest.mark.parametrize("what", ["merge", "rebase"])
def test_a_persons_unfinished_merge_stops_what_comes_and_stays_as_it_is(
    two: tuple[Machine, Machine], what: str
) -> None:
    desk, laptop = two
    laptop.git("switch", "-qc", "side")
    laptop.replace("system/human.md", "line 5", "Likes cake.")
    laptop.git("switch", "-q", "main")
    laptop.replace("system/human.md", "line 5", "Likes pie.")
    desk.create("new.md", "x\n")
    desk.sync()
    with pytest.raises(AssertionError):
        laptop.git(what, "side")
    before, state = laptop.whole(), laptop.git("status")
    with pytest.raises(MemoryStoreError, match=f"a {what} is unfinished"):
        laptop.sync()
    assert (laptop.whole(), laptop.git("status")) == (before, state)
    laptop.git(what, "--abort")
    assert laptop.sync().merged


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


def test_what_comes_is_packed_and_many_packs_become_one(two: tuple[Machine, Machine]) -> None:
    """So that a git that is killed leaves no commit without its files."""
    desk, laptop = two
    packs = laptop.memory.git_dir / "objects/pack"
    before = len(list(packs.glob("*.pack")))
    desk.create("first.md", "x\n")
    desk.sync()
    laptop.sync()
    assert len(list(packs.glob("*.pack"))) == before + 1
    many = (
        "for n in $(seq 50); do echo $n | git hash-object -w --stdin"
        " | git pack-objects -q ../repo.git/objects/pack/pack >/dev/null; done; git prune-packed"
    )
    subprocess.run(many, shell=True, cwd=laptop.memory.worktree, check=True)
    (laptop.memory.worktree / "reference/build.md").write_text("staged\n")
    laptop.git("add", "-A")
    desk.create("second.md", "x\n")
    desk.sync()
    laptop.sync()
    assert len(list(packs.glob("*.pack"))) == 1
    assert laptop.git("fsck", "--strict", "--no-dangling") == ""
    assert (
        laptop.git("cat-file", "-p", "d00491fd7e5bb6fa28c517a0bb32b8b506539d4d") == "1\n"
    )  # no ref names it
    assert laptop.git("show", ":reference/build.md") == "staged\n"
    assert laptop.text("second.md")


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
