"""What was judged is what is touched: links that are swapped in between judging and opening, and hard links.
Rows A24 of the field cases, as properties."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from letta_code.core.messages import Text
from letta_code.errors import ToolError
from letta_code.nofollow import folder_of, open_folder, read_bytes
from letta_code.tools.base import Arguments, Call, Tool, Workspace
from letta_code.tools.edit import Edit
from letta_code.tools.files import Read, Write
from letta_code.tools.permissions.policy import Mode, Policy
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.search import LS, Glob, Grep
from letta_code.tools.seen import SeenFiles

SECRET = "outside-and-not-to-be-seen"


class Bench:
    """A project with a folder `d` that can lead out, and the tools as a session has them."""

    def __init__(self, folder: Path, mode: Mode = "acceptEdits") -> None:
        self.project, self.outside = folder / "p", folder / "out"
        for each in (self.project / "real", self.outside):
            each.mkdir(parents=True)
            (each / "f").write_text(SECRET if each == self.outside else "inside")
        (self.project / "d").symlink_to("real")
        self.workspace = Workspace(self.project, (self.project,), folder / "overflow")
        self.policy = Policy(mode, Rules(), self.workspace)
        self.seen = SeenFiles()
        self.tools: dict[str, Tool[Any]] = {
            "Read": Read(self.workspace, self.seen),
            "Write": Write(self.workspace, self.seen),
            "Edit": Edit(self.workspace, self.seen),
            "LS": LS(self.workspace),
            "Grep": Grep(self.workspace, self.policy.left_out),
            "Glob": Glob(self.workspace, self.policy.left_out),
        }

    def point(self, target: str | Path) -> None:
        """Let `d` lead to `target`, in one step."""
        os.symlink(target, self.project / "new")
        os.replace(self.project / "new", self.project / "d")

    def arguments(self, name: str, **given: str) -> Arguments:
        arguments: Arguments = self.tools[name].arguments.model_validate(given)
        return arguments

    async def call(self, name: str, meanwhile: Callable[[], None] = lambda: None, **given: str) -> str:
        """Judge a call and run it when it is allowed; the text or the error."""
        arguments = self.arguments(name, **given)
        verdict = self.policy.judge(self.tools[name], arguments)
        if verdict.decision != "allow":
            return verdict.decision
        meanwhile()
        try:
            output = await self.tools[name].run(arguments, Call("c", judged=verdict.paths))
        except ToolError as error:
            return f"error: {error}"
        return "".join(block.text for block in output.content if isinstance(block, Text))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path.resolve())


CALLS: dict[str, dict[str, str]] = {
    "Read": {"file_path": "d/f"},
    "Write": {"file_path": "d/new", "content": "x"},
    "Edit": {"file_path": "d/f", "old_string": "inside", "new_string": "inside"},
    "LS": {"path": "d"},
    "Grep": {"pattern": "e", "path": "d", "output_mode": "content"},
    "Glob": {"pattern": "*", "path": "d"},
}


@pytest.mark.parametrize("name", CALLS)
async def test_a24_a_link_that_changes_after_the_question_is_not_followed(bench: Bench, name: str) -> None:
    text = await bench.call(name, lambda: bench.point(bench.outside), **CALLS[name])
    assert "leads elsewhere" in text
    assert sorted(os.listdir(bench.outside)) == ["f"]
    bench.point("real")
    assert "leads elsewhere" not in await bench.call(name, lambda: None, **CALLS[name])


@pytest.mark.parametrize("swapped", ["p/real", "p/real/f"])
def test_a24_a_link_in_place_of_what_was_resolved_is_an_error(bench: Bench, swapped: str) -> None:
    path = (bench.project / "d" / "f").resolve()
    place = bench.project.parent / swapped
    place.rename(bench.project / "moved")
    place.symlink_to(bench.outside / "f" if swapped.endswith("f") else bench.outside)
    with pytest.raises(OSError, match="symbolic links"):
        read_bytes(path, 100)


def test_opening_name_by_name_reads_and_makes_folders(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "a" / "b" / "c"
    with folder_of(path, make=True) as folder:
        os.close(os.open("c", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    assert path.is_file()
    assert read_bytes(path, 10) == b""
    handle = open_folder(path.parent)
    assert os.listdir(handle) == ["c"]
    os.close(handle)
    os.close(open_folder(Path("/")))
    with pytest.raises(NotADirectoryError), folder_of(path / "below"):
        pass
    with pytest.raises(OSError, match="not a regular file"):
        read_bytes(path.parent, 10)


@contextmanager
def swapping(bench: Bench, swap: Callable[[int], None]) -> Iterator[None]:
    """Another thread swaps without a pause while the block runs."""
    done = threading.Event()

    def loop() -> None:
        count = 0
        while not done.is_set():
            swap(count)
            count += 1

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _swap_link(bench: Bench) -> Callable[[int], None]:
    targets = ("real", str(bench.outside))
    return lambda count: bench.point(targets[count % 2])


def _swap_folder(bench: Bench) -> Callable[[int], None]:
    """`e` is by turns a folder and a link to the outside."""
    (bench.project / "e").mkdir()
    (bench.project / "e" / "f").write_text("inside")

    def swap(count: int) -> None:
        with suppress(OSError):  # a Write that finds no folder `e` makes one at this moment
            if count % 2:
                os.unlink(bench.project / "e")
                os.rename(bench.project / f"kept{count - 1}", bench.project / "e")
            else:
                os.rename(bench.project / "e", bench.project / f"kept{count}")
                os.symlink(bench.outside, bench.project / "e")

    return swap


def _swap_file(bench: Bench) -> Callable[[int], None]:
    """`real/f` is by turns a file, a link and a hard link to the outside."""
    place, outside = bench.project / "real" / "f", bench.outside / "f"

    def swap(count: int) -> None:
        new = bench.project / "next"
        if count % 3 == 0:
            new.write_text("inside")
        elif count % 3 == 1:
            new.symlink_to(outside)
        else:
            os.link(outside, new)
        os.replace(new, place)

    return swap


@pytest.mark.parametrize(("way", "folder"), [(_swap_link, "d"), (_swap_folder, "e"), (_swap_file, "real")])
async def test_a24_swapping_links_all_the_time_never_reaches_outside(
    bench: Bench, way: Callable[[Bench], Callable[[int], None]], folder: str
) -> None:
    linked = way is _swap_file  # through a hard link the file is the project's own: it can be read
    with swapping(bench, way(bench)):
        for count in range(50):
            texts = [await bench.call("Read", file_path=f"{folder}/f")]
            texts.append(await bench.call("LS", path=folder))
            bench.seen = SeenFiles()
            texts.append(await bench.call("Write", file_path=f"{folder}/w{count}", content="new"))
            for old in (SECRET, "inside"):
                await bench.call("Edit", file_path=f"{folder}/f", old_string=old, new_string=f"{old}!")
            assert linked or not any(SECRET in text for text in texts), texts
    assert os.listdir(bench.outside) == ["f"]
    assert (bench.outside / "f").read_text() == SECRET


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
async def test_a24_a_hard_link_out_asks_and_is_broken_where_nobody_agreed(tmp_path: Path, mode: Mode) -> None:
    bench = Bench(tmp_path.resolve(), mode)
    os.link(bench.outside / "f", bench.project / "twin")
    arguments = bench.arguments("Edit", file_path="twin", old_string=SECRET, new_string="changed")
    verdict = bench.policy.judge(bench.tools["Edit"], arguments)
    assert verdict.decision == ("allow" if mode == "bypassPermissions" else "ask")
    assert verdict.rule == ""
    allowing = Policy(mode, Rules(allow=("Edit", "Edit(**)", "Edit(twin)")), bench.workspace)
    assert allowing.judge(bench.tools["Edit"], arguments).decision == verdict.decision
    output = await bench.tools["Edit"].run(arguments, Call("c", judged=verdict.paths))
    assert isinstance(output.content[0], Text)
    assert "keep the old content" in output.content[0].text
    assert (bench.outside / "f").read_text() == SECRET
    assert (bench.project / "twin").read_text() == "changed"
