"""Undo of what shell commands did: the project is looked at before and after, as the shell tool does."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.tools.base import Call
from letta_code.tools.undoing import Undoing
from letta_code.undo.copies import ProjectCopies, latest, survey
from letta_code.undo.plan import Options
from letta_code.undo.recorder import Recorder
from letta_code.undo.restore import Outcome, Undo
from letta_code.undo.store import UndoStore


class Bench:
    """A project in which commands run, each a function here."""

    def __init__(self, folder: Path) -> None:
        self.project = (folder / "project").resolve()
        self.project.mkdir()
        self.folder = folder
        self.store = UndoStore(folder / "data")
        self.recorder = Recorder(self.store, self.project, folder / "cache" / "copies")

    def listing(self) -> list[str]:
        return [
            os.path.relpath(os.path.join(folder, name), self.project)
            for folder, _, names in os.walk(self.project)
            for name in names
            if not os.path.islink(os.path.join(folder, name))
        ]

    def command(self, turn: int, work: Callable[[], object]) -> None:
        running = self.recorder.before_command(turn, "make", self.listing())
        assert running is not None
        work()
        self.recorder.after_command(running, self.listing())

    def edit(self, turn: int, name: str, text: str) -> None:
        path = self.project / name
        before = path.read_bytes() if path.exists() else None
        self.recorder.before_write(turn, "Write", path, before, text.encode())
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def shell(self, script: str) -> None:
        subprocess.run(["bash", "-c", script], cwd=self.project, check=True)

    def undo(self, turns: int = 1, commands: bool = True, force: bool = False) -> Outcome:
        return self.undoing().undo(Options(turns, commands, force))

    def undoing(self) -> Undo:
        return Undo(UndoStore(self.folder / "data"), lambda project: self.folder / "cache" / "copies")

    def why(self, outcome: Outcome) -> dict[str, tuple[str, str, str]]:
        return {
            os.path.relpath(file.plan.path, self.project): (file.result, file.plan.why, file.plan.command)
            for file in outcome.files
        }

    def holds(self) -> dict[str, str]:
        return {name: (self.project / name).read_text() for name in sorted(self.listing())}

    def tree(self) -> dict[str, str]:
        """Everything there, folders and links included."""
        found = {}
        for path in self.project.rglob("*"):
            name = str(path.relative_to(self.project))
            if path.is_symlink():
                found[name] = f"-> {os.readlink(path)}"
            else:
                found[name] = "folder" if path.is_dir() else path.read_text()
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_content_mode_and_links_come_back(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        (bench.project / name).write_text(name)
    (bench.project / "link").symlink_to("a")

    def work() -> None:
        (bench.project / "a").write_text("A")
        (bench.project / "b").chmod(0o700)
        (bench.project / "c").rename(bench.project / "d")
        (bench.project / "link").unlink()
        (bench.project / "link").symlink_to("b")
        os.utime(bench.project / "d")

    (bench.project / "b").chmod(0o640)
    bench.command(1, work)
    outcome = bench.undo()
    assert {os.path.basename(file.plan.path): file.result for file in outcome.files} == {
        "a": "restored",
        "b": "restored",
        "c": "restored",
        "d": "removed",
        "link": "restored",
    }
    assert bench.holds() == {"a": "a", "b": "b", "c": "c"}
    assert (bench.project / "b").stat().st_mode & 0o777 == 0o640
    assert os.readlink(bench.project / "link") == "a"


def test_a_file_that_was_only_touched_is_no_change(bench: Bench) -> None:
    (bench.project / "a").write_text("a")
    bench.command(1, lambda: os.utime(bench.project / "a", (1, 1)))
    assert bench.undo() == Outcome((), ())


def test_a_file_that_became_a_link_is_replaced_and_its_target_is_not(bench: Bench) -> None:
    outside = bench.folder / "outside"
    outside.write_text("outside")
    (bench.project / "a").write_text("a")

    def work() -> None:
        (bench.project / "a").unlink()
        (bench.project / "a").symlink_to(outside)

    bench.command(1, work)
    bench.undo()
    assert not (bench.project / "a").is_symlink()
    assert bench.holds() == {"a": "a"}
    assert outside.read_text() == "outside"


def test_the_same_size_within_one_tick_of_the_clock_is_a_change(bench: Bench) -> None:
    (bench.project / "a").write_text("before")
    status = (bench.project / "a").stat()

    def work() -> None:
        (bench.project / "a").write_text("after!")
        os.utime(bench.project / "a", ns=(status.st_atime_ns, status.st_mtime_ns))

    bench.command(1, work)
    assert bench.undo().turns == (1,)
    assert bench.holds() == {"a": "before"}


def test_copies_that_another_process_made_are_used_and_lost_ones_are_made_again(bench: Bench) -> None:
    (bench.project / "a").write_text("a")
    bench.command(1, lambda: None)
    bench.recorder = Recorder(bench.store, bench.project, bench.folder / "cache" / "copies")
    (pack,) = (bench.folder / "cache" / "copies").glob("*.pack")
    pack.unlink()
    bench.command(2, lambda: (bench.project / "a").unlink())
    bench.undo()
    assert bench.holds() == {"a": "a"}


def test_copies_that_are_gone_when_a_command_was_not_seen_to_end_are_missed_aloud(bench: Bench) -> None:
    (bench.project / "a").write_text("a")
    assert bench.recorder.before_command(1, "make clean", bench.listing()) is not None
    (bench.project / "a").unlink()
    for path in (bench.folder / "cache" / "copies").iterdir():
        path.unlink()
    words = "it was not seen to end, and the copies from before it are gone"
    assert bench.undo().uncovered == (("make clean", words),)


async def test_a_project_with_too_many_files_is_not_looked_at_and_that_is_said(bench: Bench) -> None:
    for number in range(3):
        (bench.project / f"{number}.txt").write_text("x")
    undoing = Undoing(bench.recorder, bench.project, dict(os.environ), most=2)
    assert await undoing.before_command(Call("c1", turn=1), "make all") is None
    assert bench.undo().uncovered == (("make all", "the project has more than 2 files"),)


async def test_what_git_ignores_is_not_looked_at_and_what_only_ripgrep_ignores_is(bench: Bench) -> None:
    (bench.project / ".gitignore").write_text("built\n")
    (bench.project / ".ignore").write_text("fixtures\n")
    for name in ("built", "fixtures", ".hidden", "名前\n"):
        (bench.project / name).write_text(name)
    undoing = Undoing(bench.recorder, bench.project, dict(os.environ))
    running = await undoing.before_command(Call("c1", turn=1), "make clean")
    assert running is not None
    assert sorted(running.before.files) == [".gitignore", ".hidden", ".ignore", "fixtures", "名前\n"]


async def test_a_project_that_is_not_too_large_any_more_is_looked_at_again(bench: Bench) -> None:
    for number in range(3):
        (bench.project / f"{number}.txt").write_text("x")
    undoing = Undoing(bench.recorder, bench.project, dict(os.environ), most=2)
    assert await undoing.before_command(Call("c1", turn=1), "rm 0.txt") is None
    (bench.project / "0.txt").unlink()
    running = await undoing.before_command(Call("c2", turn=2), "rm 1.txt")
    (bench.project / "1.txt").unlink()
    await undoing.after_command(running)
    bench.undo()
    assert bench.holds() == {"1.txt": "x", "2.txt": "x"}


async def test_what_an_exclude_file_no_longer_hides_is_not_new(bench: Bench) -> None:
    exclude = bench.project / ".git" / "info" / "exclude"
    exclude.parent.mkdir(parents=True)
    exclude.write_text("secret\nlogs/*.log\n")
    (bench.project / "logs").mkdir()
    (bench.project / "logs" / "a.log").write_text("mine")
    (bench.project / "secret").write_text("mine")
    undoing = Undoing(bench.recorder, bench.project, dict(os.environ))
    running = await undoing.before_command(Call("c1", turn=1), "make all")
    exclude.write_text("")
    for name in ("secret", "logs/a.log", "logs/new", "new"):
        (bench.project / name).write_text("the command's")
    await undoing.after_command(running)
    outcome = bench.undo()
    removed = [os.path.relpath(file.plan.path, bench.project) for file in outcome.files]
    assert removed == ["logs/new", "new"]
    assert bench.holds() == {
        ".git/info/exclude": "",
        "secret": "the command's",
        "logs/a.log": "the command's",
    }


def test_a_folder_that_a_command_renamed_goes_back_whole(bench: Bench) -> None:
    for name in ("src/a", "src/deep/b"):
        (bench.project / name).parent.mkdir(exist_ok=True)
        (bench.project / name).write_text(name)
    (bench.project / "src" / "link").symlink_to("a")
    while time.time_ns() < latest((bench.project / "src" / "link").lstat().st_ctime_ns):
        pass  # what was there long before the command, by the file system's clock
    bench.command(1, lambda: (bench.project / "src").rename(bench.project / "lib"))
    bench.undo()
    assert bench.holds() == {"src/a": "src/a", "src/deep/b": "src/deep/b"}
    assert os.readlink(bench.project / "src" / "link") == "a"
    assert os.listdir(bench.project) == ["src"]


EXCHANGED = {
    "a file by a folder": ("echo 1 >a", "rm a; mkdir -p a/c; echo 2 >a/b; echo 3 >a/c/d; ln -s x a/c/l"),
    "a folder by a file": ("mkdir -p d/e; echo 1 >d/x; echo 2 >d/e/y; ln -s y d/e/l", "rm -r d; echo 3 >d"),
    "a folder by a link": ("mkdir d o; echo 1 >d/x; echo 2 >o/x", "rm -r d; ln -s o d"),
    "a link by a folder": ("mkdir o; echo 1 >o/x; ln -s o d", "rm d; mkdir d; echo 2 >d/x"),
    "two folders by each other": ("mkdir a b; echo 1 >a/x; echo 2 >b/x", "mv a t; mv b a; mv t b"),
    "names with newlines": ("mkdir 'd\n'; echo 1 >'d\n/x\n'", "rm -r d*; echo 2 >'d\n'"),
    "names that are not UTF-8": ("mkdir $'d\\376'; echo 1 >$'d\\376/x'; ln -s $'\\377' $'\\375'", "rm -r *"),
    "a folder that is deleted": ("mkdir -p a/b; echo 1 >a/b/c", "rm -r a"),
}


@pytest.mark.parametrize("what", EXCHANGED)
def test_what_a_command_exchanged_comes_back_and_goes_again_as_a_dry_run_says(
    bench: Bench, what: str
) -> None:
    prepare, work = EXCHANGED[what]
    bench.shell(prepare)
    before = bench.tree()
    bench.command(1, lambda: bench.shell(work))
    after = bench.tree()
    promised = bench.why(bench.undoing().preview(Options(commands=True)))
    assert bench.tree() == after
    assert bench.why(bench.undo()) == promised
    assert bench.tree() == before
    bench.undoing().redo()
    assert bench.tree() == after


def test_a_folder_that_holds_something_of_the_persons_is_not_exchanged_back(bench: Bench) -> None:
    bench.shell("echo 1 >a")
    bench.command(1, lambda: bench.shell("rm a; mkdir a; echo 2 >a/b"))
    bench.shell("echo mine >a/mine")
    promised = bench.why(bench.undoing().preview(Options(commands=True)))
    assert (
        bench.why(bench.undo())
        == promised
        == {"a": ("left", "blocked", "make"), "a/b": ("removed", "", "make")}
    )
    assert bench.holds() == {"a/mine": "mine\n"}


def test_what_cannot_be_done_is_said_before(bench: Bench) -> None:
    bench.shell("echo 1 >large; echo 2 >bits; chmod 600 bits; echo 3 >closed; echo 4 >other")
    bench.shell("chmod 444 other")
    bench.command(1, lambda: bench.shell("truncate -s 20000001 large; chmod 644 bits; echo 5 >closed"))
    bench.command(1, lambda: bench.shell("rm -f other; echo 6 >other; chmod 444 other"))
    bench.shell("chmod 444 closed")
    promised = bench.undoing().preview(Options(commands=True)).files
    done = bench.undo().files
    assert [(file.result, file.plan.detail) for file in promised] == [
        (file.result, file.plan.detail) for file in done
    ]
    assert {os.path.basename(file.plan.path): file.plan.detail for file in done if file.result == "left"} == {
        "large": "what it holds now is larger than 20 MB and cannot be kept",
        "closed": "it is write-protected",
    }
    assert (bench.project / "other").read_text() == "4\n"


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """No file can grow beyond `size`, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_f14_an_undo_for_which_there_is_no_room_leaves_files_as_they_were_and_succeeds_later(
    bench: Bench,
) -> None:
    large = "x" * 30_000
    bench.shell("mkdir x; echo small >s")
    for name in ("a", "linked", "x/c"):
        (bench.project / name).write_text(large)
    os.link(bench.project / "linked", bench.project / "other")
    before = bench.tree()
    for name in ("a", "linked"):
        bench.edit(1, name, "edited")
    bench.command(1, lambda: bench.shell("rm -r x; rm s; echo file >x"))
    after = bench.tree()
    with files_at_most(20_000):
        outcome = bench.undo()
    left = [name for name, (result, *_) in bench.why(outcome).items() if result == "left"]
    assert left == ["a", "linked", "x/c"]
    assert bench.tree() == {"a": "edited", "linked": "edited", "other": "edited", "s": "small\n"}
    bench.undo()
    assert bench.tree() == before
    assert os.path.samefile(bench.project / "linked", bench.project / "other")
    bench.undoing().redo()
    bench.undoing().redo()
    assert bench.tree() == after


def killed(work: Callable[[], object], point: int) -> bool:
    """Whether `work`, in a process of its own, is killed when it changes files for the `point`th time."""
    child = os.fork()
    if not child:
        points = iter(range(point))

        def count(event: str, _: object) -> None:
            if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink") and (
                next(points, None) is None
            ):
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_d06_an_undo_that_is_killed_anywhere_is_finished_by_the_next(bench: Bench) -> None:
    bench.shell("mkdir d x; echo 1 >a; echo 2 >d/b; echo 3 >x/c; ln -s a l; echo 4 >h; ln h i; echo 5 >e")
    before = bench.tree()
    for name in ("a", "new/n", "h"):
        bench.edit(1, name, "the agent's")
    bench.command(
        1, lambda: bench.shell("rm -r x l e; echo 6 >x; ln -s b l; mkdir e; echo 7 >e/f; echo 8 >z")
    )
    after = bench.tree()
    point = 50
    while killed(bench.undo, point):
        point += 45
        bench.undo()
        assert bench.tree() == before
        bench.undoing().redo()
        assert bench.tree() == after
    assert point > 100


def test_copies_that_a_full_disk_cut_short_are_made_again(bench: Bench) -> None:
    (bench.project / "a").write_text("x" * 9_000)
    bench.command(1, lambda: None)
    (bench.project / "a").write_text("y" * 3_000)
    with files_at_most(10_000):
        assert bench.recorder.before_command(2, "make", bench.listing()) is None
    bench.command(3, lambda: (bench.project / "a").unlink())
    assert bench.why(bench.undo()) == {"a": ("restored", "", "make")}
    assert bench.holds() == {"a": "y" * 3_000}


def test_a_file_whose_times_are_whole_seconds_is_read_again_for_two_seconds(bench: Bench) -> None:
    (bench.project / "a").write_text("a")
    found = survey(bench.project, ["a"])
    second = 1_700_000_000 * 1_000_000_000
    copies = ProjectCopies(bench.folder / "coarse", bench.project)
    young = []
    for stamp, later in ((second, 1.9), (second, 2.1), (second + 1, 0.01), (second + 1, 0.1)):
        size, _, _, inode, mode = found.files["a"]
        files = {"a": (size, stamp, stamp, inode, mode)}
        copies.update(replace(found, files=files, at=second + int(later * 1_000_000_000)))
        copy = copies.before("a")
        assert copy is not None
        young.append(copy.young)
    assert young == [True, False, True, False]


@pytest.mark.parametrize("then", ["command", "edit"])
def test_what_a_command_in_the_background_did_before_a_later_change_is_not_lost(
    bench: Bench, then: str
) -> None:
    path = bench.project / "a"
    path.write_text("yours")
    assert bench.recorder.before_command(1, "make watch &", bench.listing()) is not None
    path.write_text("the watcher's")
    if then == "edit":
        bench.edit(1, "a", "edited")
        assert bench.why(bench.undo(commands=False)) == {"a": ("restored", "between", "make watch &")}
        bench.edit(1, "a", "edited")
    else:
        bench.command(1, lambda: path.write_text("formatted"))
    assert bench.why(bench.undo()) == {"a": ("restored", "unsure", "make watch &")}
    assert bench.holds() == {"a": "the watcher's"}
    bench.undo(force=True)
    assert bench.holds() == {"a": "yours"}


def test_what_a_command_in_the_background_deleted_before_a_later_change_comes_back(bench: Bench) -> None:
    (bench.project / "a").write_text("yours")
    assert bench.recorder.before_command(1, "make clean &", bench.listing()) is not None
    (bench.project / "a").unlink()
    bench.edit(1, "a", "new")
    assert bench.why(bench.undo()) == {"a": ("restored", "", "make clean &")}
    assert bench.holds() == {"a": "yours"}


def test_an_undo_of_files_does_not_end_the_doubt_about_a_command_in_the_background(bench: Bench) -> None:
    (bench.project / "a").write_text("yours")
    (bench.project / "b").write_text("yours")
    assert bench.recorder.before_command(1, "make watch &", bench.listing()) is not None
    (bench.project / "a").unlink()
    bench.edit(1, "a", "edited")
    bench.undo(commands=False)
    (bench.project / "b").unlink()
    assert bench.why(bench.undo()) == {
        "a": ("restored", "", "make watch &"),
        "b": ("restored", "", "make watch &"),
    }
    assert bench.holds() == {"a": "yours", "b": "yours"}


def test_an_edit_after_a_command_goes_back_to_what_the_command_made_and_that_is_said(bench: Bench) -> None:
    (bench.project / "a").write_text("yours")
    bench.command(1, lambda: (bench.project / "a").write_text("made"))
    bench.edit(1, "a", "edited")
    assert bench.why(bench.undo(commands=False)) == {"a": ("restored", "between", "make")}
    assert bench.holds() == {"a": "made"}


NAMES = ("a", "b", "sub/c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["edit", "command", "command deletes", "person", "next"]),
        st.sampled_from(NAMES),
        st.sampled_from("123"),
    ),
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(STEPS, st.integers(1, 3))
def test_whatever_runs_the_persons_later_changes_stay_and_the_rest_comes_back(
    steps: list[tuple[str, str, str]], turns: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        (bench.project / "a").write_text("start")
        turn = 1
        began = {turn: bench.holds()}
        theirs: dict[str, str] = {}
        touched: dict[str, int] = {}
        for what, name, text in steps:
            path = bench.project / name

            def work(path: Path = path, text: str = text) -> None:
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"command {text}")

            if what == "next":
                turn += 1
                began[turn] = bench.holds()
            elif what == "person":
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"person {text}")
                theirs[name], touched[name] = f"person {text}", turn
            else:
                theirs.pop(name, None)
                if what == "edit":
                    bench.edit(turn, name, f"edit {text}")
                elif what == "command":
                    bench.command(turn, work)
                else:
                    bench.command(turn, lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]
        outcome = bench.undo(turns)
        now = bench.holds()
        for name, left in theirs.items():
            assert now.get(name) == left
        for file in outcome.files:
            name = os.path.relpath(file.plan.path, bench.project)
            if touched.get(name, 0) < outcome.turns[0]:
                assert now.get(name) == began[outcome.turns[0]].get(name)
