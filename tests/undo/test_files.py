"""Undo of what file tools changed: kept before, restored after, never over the person's changes."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.undo.plan import Options
from letta_code.undo.recorder import Recorder
from letta_code.undo.restore import Outcome, Undo
from letta_code.undo.store import KEPT, UndoStore


class Desk:
    """A project and an undo folder; `agent` changes a file as the file tools do."""

    def __init__(self, folder: Path) -> None:
        self.project = (folder / "project").resolve()
        self.project.mkdir()
        self.data = folder / "data"

    def agent(self, turn: int, name: str, text: str) -> None:
        path = self.project / name
        before = path.read_bytes() if path.exists() else None
        recorder = Recorder(UndoStore(self.data), self.project, self.data / "copies")
        recorder.before_write(turn, "Write", path.resolve(), before, text.encode())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def undo(self, turns: int = 1, force: bool = False) -> dict[str, str]:
        return self.shown(self._undo().undo(Options(turns, force=force)))

    def redo(self) -> dict[str, str]:
        return self.shown(self._undo().redo())

    def preview(self, turns: int = 1) -> dict[str, str]:
        return self.shown(self._undo().preview(Options(turns)))

    def _undo(self) -> Undo:
        return Undo(UndoStore(self.data), lambda project: self.data / "copies")

    def shown(self, outcome: Outcome) -> dict[str, str]:
        return {
            os.path.relpath(file.plan.path, self.project): " ".join(
                filter(None, (file.result, file.plan.why, file.plan.detail))
            )
            for file in outcome.files
        }

    def holds(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.project)): path.read_text()
            for path in sorted(self.project.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_last_turns_files_come_back_and_new_ones_go_with_their_folders(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    (desk.project / "a.py").chmod(0o751)
    desk.agent(1, "a.py", "two\n")
    desk.agent(2, "a.py", "three\n")
    desk.agent(2, "a.py", "four\n")
    desk.agent(2, "new/deep/b.py", "b\n")
    assert desk.preview() == {"a.py": "restored", "new/deep/b.py": "removed"}
    assert desk.holds() == {"a.py": "four\n", "new/deep/b.py": "b\n"}
    assert desk.undo() == {"a.py": "restored", "new/deep/b.py": "removed"}
    assert desk.holds() == {"a.py": "two\n"}
    assert not (desk.project / "new").exists()
    assert stat.S_IMODE((desk.project / "a.py").stat().st_mode) == 0o751
    assert desk.undo() == {"a.py": "restored"}
    assert desk.holds() == {"a.py": "one\n"}
    assert desk.undo() == {}


def test_several_turns_at_once(desk: Desk) -> None:
    for turn in (3, 5, 9):
        desk.agent(turn, "a.py", f"{turn}\n")
    assert desk.undo(2) == {"a.py": "restored"}
    assert desk.holds() == {"a.py": "3\n"}


def test_the_persons_newer_change_is_left_until_told(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    desk.agent(1, "a.py", "two\n")
    (desk.project / "a.py").write_text("mine\n")
    assert desk.undo() == {"a.py": "left newer"}
    assert desk.holds() == {"a.py": "mine\n"}
    assert desk.undo(force=True) == {"a.py": "restored"}
    assert desk.holds() == {"a.py": "one\n"}
    assert desk.redo() == {"a.py": "restored"}
    assert desk.holds() == {"a.py": "mine\n"}


def test_the_persons_change_between_two_of_the_agents_is_what_comes_back(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    desk.agent(1, "a.py", "two\n")
    (desk.project / "a.py").write_text("mine\n")
    desk.agent(1, "a.py", "three\n")
    assert desk.undo() == {"a.py": "restored between"}
    assert desk.holds() == {"a.py": "mine\n"}
    assert desk.undo(force=True) == {"a.py": "restored"}
    assert desk.holds() == {"a.py": "one\n"}


def test_an_undo_can_be_taken_back_and_done_again(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    desk.agent(1, "a.py", "two\n")
    desk.agent(1, "sub/b.py", "b\n")
    for _ in range(2):
        desk.undo()
        assert desk.holds() == {"a.py": "one\n"}
        assert desk.redo() == {"a.py": "restored", "sub/b.py": "restored"}
        assert desk.holds() == {"a.py": "two\n", "sub/b.py": "b\n"}
    assert desk.redo() == {}


def test_b_change_that_was_announced_and_not_made_is_nothing(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    recorder = Recorder(UndoStore(desk.data), desk.project, desk.data / "copies")
    recorder.before_write(1, "Edit", desk.project / "a.py", b"one\n", b"two\n")
    assert desk.undo() == {"a.py": "unchanged"}
    recorder.before_write(2, "Edit", desk.project / "a.py", b"one\n", b"two\n")
    desk.agent(2, "a.py", "three\n")
    assert desk.undo() == {"a.py": "restored"}
    assert desk.holds() == {"a.py": "one\n"}


def test_files_that_are_gone_folders_or_behind_a_swapped_link_are_left(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.py").write_text("precious\n")
    for name in ("gone.py", "folder.py", "sub/c.py", "link.py"):
        (desk.project / name).parent.mkdir(exist_ok=True)
        (desk.project / name).write_text("one\n")
        desk.agent(1, name, "two\n")
    (desk.project / "gone.py").unlink()
    (desk.project / "folder.py").unlink()
    (desk.project / "folder.py").mkdir()
    (desk.project / "sub").rename(desk.project / "moved")
    (desk.project / "sub").symlink_to(outside)
    (desk.project / "link.py").unlink()
    (desk.project / "link.py").symlink_to(outside / "c.py")
    assert desk.undo() == {
        "gone.py": "left gone",
        "folder.py": "left blocked it is a folder now",
        "sub/c.py": "left blocked a link has taken the place of a part of its path",
        "link.py": "left newer",
    }
    forced = desk.undo(force=True)
    assert forced["gone.py"] == forced["link.py"] == "restored"
    assert not (desk.project / "link.py").is_symlink()
    assert (desk.project / "link.py").read_text() == "one\n"
    assert (outside / "c.py").read_text() == "precious\n"
    assert (desk.project / "folder.py").is_dir()


def test_hard_links_change_together_only_when_they_did_before(desk: Desk) -> None:
    path, other = desk.project / "a.py", desk.project / "other.py"
    path.write_text("one\n")
    os.link(path, other)
    desk.agent(1, "a.py", "two\n")
    desk.undo()
    assert other.read_text() == "one\n"
    assert os.path.samefile(path, other)
    desk.redo()
    assert other.read_text() == "two\n"
    desk.undo()
    other.unlink()
    desk.agent(2, "a.py", "two\n")
    os.link(path, other)  # the person's copy of what the agent had made
    desk.undo()
    assert (path.read_text(), other.read_text()) == ("one\n", "two\n")


def test_h01_what_the_agent_did_not_change_is_untouched(desk: Desk) -> None:
    (desk.project / "big.bin").write_bytes(b"x" * 1_000_000)
    desk.agent(1, "new/a.py", "two\n")
    (desk.project / "new" / "mine.txt").write_text("mine\n")
    status = (desk.project / "big.bin").stat()
    desk.undo()
    now = (desk.project / "big.bin").stat()
    assert (now.st_ino, now.st_mtime_ns, now.st_ctime_ns) == (
        status.st_ino,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
    assert sorted(desk.holds()) == ["big.bin", "new/mine.txt"]


def test_what_is_kept_is_private(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    desk.agent(1, "a.py", "two\n")
    for path in desk.data.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_torn_journal_line_costs_only_itself(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    desk.agent(1, "a.py", "two\n")
    with (desk.data / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"kind":"cha')
    desk.agent(2, "a.py", "three\n")
    assert desk.undo(2) == {"a.py": "restored"}
    assert desk.holds() == {"a.py": "one\n"}


def test_a_content_that_is_not_kept_any_more_is_said(desk: Desk) -> None:
    (desk.project / "a.py").write_text("one\n")
    desk.agent(1, "a.py", "two\n")
    for path in (desk.data / "objects").iterdir():
        path.unlink()
    assert desk.undo() == {"a.py": "left lost"}
    assert desk.holds() == {"a.py": "two\n"}


def test_the_oldest_contents_go_when_there_is_no_room(desk: Desk) -> None:
    for turn in (1, 2, 3):
        (desk.project / f"{turn}.txt").write_text(str(turn) * 1000)
        store = UndoStore(desk.data, room=2500)
        recorder = Recorder(store, desk.project, desk.data / "copies")
        recorder.before_write(turn, "Write", desk.project / f"{turn}.txt", str(turn).encode() * 1000, b"x")
        (desk.project / f"{turn}.txt").write_text("x")
    assert desk.undo(3) == {"1.txt": "left lost", "2.txt": "restored", "3.txt": "restored"}


def test_what_an_undo_keeps_does_not_push_out_what_it_restores(desk: Desk) -> None:
    for turn in (1, 2):
        (desk.project / f"{turn}.txt").write_text(str(turn) * 1000)
        desk.agent(turn, f"{turn}.txt", "agent" * 200 + str(turn))
    undo = Undo(UndoStore(desk.data, room=2500), lambda project: desk.data / "copies")
    assert desk.shown(undo.undo(Options(2))) == {"1.txt": "restored", "2.txt": "restored"}
    assert desk.holds() == {"1.txt": "1" * 1000, "2.txt": "2" * 1000}
    assert desk.redo() == {"1.txt": "restored", "2.txt": "restored"}


def test_contents_that_no_record_needs_go_first(desk: Desk) -> None:
    (desk.project / "a.txt").write_text("a" * 1000)
    desk.agent(1, "a.txt", "two")
    for name in ("0" * 64, f".{'1' * 64}.abc"):  # a program that died left them
        (desk.data / "objects" / name).write_text("x" * 1000)
    UndoStore(desk.data, room=2500).keep(b"b" * 1000)
    assert desk.undo() == {"a.txt": "restored"}


def test_a_content_that_is_needed_again_is_not_the_oldest(desk: Desk) -> None:
    store = UndoStore(desk.data, room=2500)
    recorder = Recorder(store, desk.project, desk.data / "copies")
    for name in ("a.txt", "b.txt"):
        (desk.project / name).write_text("x" * 1000)
    recorder.before_write(1, "Write", desk.project / "a.txt", b"x" * 1000, b"a")
    (desk.project / "a.txt").write_text("a")
    (desk.project / "c.txt").write_text("c" * 2000)
    listing = ["a.txt", "b.txt", "c.txt"]
    running = recorder.before_command(2, "rm b.txt c.txt", listing)
    assert running is not None
    for name in ("b.txt", "c.txt"):
        (desk.project / name).unlink()
    recorder.after_command(running, ["a.txt"])
    outcome = Undo(UndoStore(desk.data), lambda project: desk.data / "copies").undo(Options(commands=True))
    assert desk.shown(outcome) == {"b.txt": "restored", "c.txt": "restored"}


def test_a_file_that_is_too_large_is_not_kept_and_that_is_said(desk: Desk) -> None:
    large = b"x" * (KEPT + 1)
    (desk.project / "a.bin").write_bytes(large)
    recorder = Recorder(UndoStore(desk.data), desk.project, desk.data / "copies")
    recorder.before_write(1, "Edit", desk.project / "a.bin", large, b"y")
    (desk.project / "a.bin").write_bytes(b"y")
    assert desk.undo() == {"a.bin": "left lost larger than 20 MB"}
    assert (desk.project / "a.bin").read_bytes() == b"y"


def test_a_file_that_cannot_be_written_now_is_left_and_the_others_are_not(desk: Desk) -> None:
    fixed = Path("/proc/version")  # which nobody can write, root neither
    recorder = Recorder(UndoStore(desk.data), desk.project, desk.data / "copies")
    recorder.before_write(1, "Edit", fixed, b"before", fixed.read_bytes())
    desk.agent(1, "a.py", "two\n")
    shown = desk.undo()
    assert shown.pop("a.py") == "removed"
    assert [words.startswith("left blocked") for words in shown.values()] == [True]


NAMES = ("a", "b", "sub/c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["agent", "person", "delete", "next"]),
        st.sampled_from(NAMES),
        st.sampled_from("123456"),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(1, 3))
def test_whatever_happens_the_persons_changes_stay_and_the_rest_comes_back(
    steps: list[tuple[str, str, str]], turns: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        (desk.project / "a").write_text("start")
        turn = 1
        began = {turn: desk.holds()}
        touched: dict[str, int] = {}  # the last turn in which the person changed the file
        theirs: dict[str, str | None] = {}
        wrote: dict[int, set[str]] = {}
        for what, name, text in steps:
            path = desk.project / name
            if what == "agent":
                wrote.setdefault(turn, set()).add(name)
                desk.agent(turn, name, f"agent {text}")
                theirs.pop(name, None)
            elif what == "next":
                turn += 1
                began[turn] = desk.holds()
            else:
                if what == "person":
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(f"person {text}")
                elif path.exists():
                    path.unlink()
                touched[name] = turn
                theirs[name] = path.read_text() if path.exists() else None
        undone = sorted(wrote)[-turns:]
        desk.undo(turns)
        now = desk.holds()
        for name, left in theirs.items():
            assert now.get(name) == left
        for name in {name for turn in undone for name in wrote[turn]}:
            if touched.get(name, 0) < undone[0]:
                assert now.get(name) == began[undone[0]].get(name)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_d06_an_undo_that_a_crash_broke_off_is_finished_or_taken_back(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        names = ["a", "b", "new/c"]
        for name in names[:2]:
            (desk.project / name).write_text("start")
        for name in names:
            desk.agent(1, name, f"agent {name}")
        before, changed = {"a": "start", "b": "start"}, desk.holds()
        desk.undo()
        journal = desk.data / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        cut = data.draw(st.integers(len(names), len(lines)))
        journal.write_bytes(
            b"".join(lines[:cut]) + lines[cut][:10] if cut < len(lines) else journal.read_bytes()
        )
        for name in names:  # a file goes back only after all was announced
            if cut < len(lines) - 1 or data.draw(st.booleans()):
                (desk.project / name).parent.mkdir(exist_ok=True)
                (desk.project / name).write_text(changed[name])
        if data.draw(st.booleans()) and cut >= len(lines) - 1:
            desk.redo()
            assert desk.holds() == changed
        elif cut < len(lines):
            desk.undo()
            assert desk.holds() == before
            desk.redo()
            assert desk.holds() == changed
