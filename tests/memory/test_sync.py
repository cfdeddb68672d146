"""Two machines, one memory: what a sync joins, and what it shows where both changed the same."""

from __future__ import annotations

import pytest

from letta_code.errors import MemoryEditError
from letta_code.memory.edits import Delete, Rename
from letta_code.memory.git.log import log
from letta_code.memory.git.merge import Conflict, Keep
from letta_code.memory.git.sync import SyncReport
from letta_code.memory.rules import PERSON
from tests.memory.machines import LINES, Machine

KEEPS: tuple[Keep, ...] = ("ours", "theirs", "both")


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
