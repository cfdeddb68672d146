"""Whatever a command does to hide its processes, none of them outlives it (B05): checked by pid."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from letta_code.core.messages import Text
from letta_code.tools.base import Call, Workspace
from letta_code.tools.processes.jobs import end_all
from letta_code.tools.shell import Bash, BashArguments, ShellPool

ROOT = Path(__file__).resolve().parents[2]
WAIT = 20.0  # seconds; only a deadline for what should happen at once

NASTY = {
    "background": "./s & ./s",
    "nohup": "nohup ./s >/dev/null 2>&1 & ./s",
    "setsid": "setsid ./s & ./s",
    "double fork": "( ( ./s & ) & ); ./s",
    "disown": "./s & disown; ./s",
    "deaf": "trap '' TERM INT HUP; ./s & ./s; true",
    "no environment": "env -i setsid nohup ./s >/dev/null 2>&1 & disown; ./s",
    "daemon": "(env -i setsid bash -c '(./s &) &' &) ; ./s",
}
"""Each starts two processes, one of them in the foreground."""

ALL = (
    "trap '' HUP; ./s & nohup ./s >/dev/null 2>&1 & setsid ./s & ( ( ./s & ) & ); "
    "env -i setsid nohup ./s >/dev/null 2>&1 & disown; ./s"
)
"""Six of them."""


class Tools:
    def __init__(self, folder: Path) -> None:
        (folder / "s").write_text("#!/bin/sh\necho $$ >>noted\nexec sleep 300\n")
        (folder / "s").chmod(0o700)
        self.folder = folder
        self.workspace = Workspace(folder, (folder,), folder / "overflow")
        self.pool = ShellPool(self.workspace)

    async def bash(self, command: str, **arguments: object) -> str:
        tool = Bash(self.workspace, self.pool)
        output = await tool.run(BashArguments.model_validate({"command": command, **arguments}), Call("1"))
        (part,) = output.content
        assert isinstance(part, Text)
        return part.text

    def pids(self) -> list[int]:
        noted = self.folder / "noted"
        return [int(line) for line in noted.read_text().split("\n")[:-1]] if noted.exists() else []


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Tools]:
    made = Tools(tmp_path)
    yield made
    await made.pool.close()


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def started(tools: Tools, command: str, count: int) -> asyncio.Task[str]:
    """The running call, once its processes are there."""
    running = asyncio.create_task(tools.bash(command))
    await until(lambda: len(tools.pids()) == count)
    assert all(map(alive, tools.pids()))
    return running


@pytest.mark.parametrize("pattern", NASTY.values(), ids=NASTY)
async def test_b05_a_cancel_ends_all_that_a_command_started(tools: Tools, pattern: str) -> None:
    running = await started(tools, pattern, 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(map(alive, tools.pids()))


async def test_b05_a_timeout_ends_all_that_a_command_started(tools: Tools) -> None:
    said = await tools.bash(
        f"{ALL} >/dev/null & until [ $(wc -l <noted) = 6 ]; do :; done; ./s", timeout=3000
    )
    assert "Timed out" in said
    assert len(tools.pids()) == 7
    assert not any(map(alive, tools.pids()))


async def test_b05_what_hid_itself_is_a_survivor_and_only_its_own_shell_ends_it(tools: Tools) -> None:
    hidden = "env -i setsid nohup ./s >/dev/null 2>&1 & until [ -s noted ]; do :; done"
    first = await tools.bash(hidden)
    (one,) = tools.pids()
    (tools.folder / "noted").unlink()
    second = await tools.bash(hidden)
    (other,) = tools.pids()
    assert f"Still running as bash_1: pid {one}" in first
    assert f"Still running as bash_2: pid {other}" in second
    await tools.pool.get("bash_1").job.kill()
    assert not alive(one)
    assert alive(other)
    await tools.pool.close()
    assert not alive(other)


async def test_b05_the_last_resort_needs_no_session_and_no_event_loop(tools: Tools) -> None:
    running = await started(tools, ALL, 6)
    await asyncio.to_thread(end_all)
    assert not any(map(alive, tools.pids()))
    assert "SIGKILL" in await running


async def test_b05_a_killed_keeper_is_no_way_out(tools: Tools) -> None:
    running = await started(tools, ALL, 6)
    keeper = psutil.Process(tools.pids()[0])
    while "keeper.py" not in " ".join(keeper.cmdline()):
        keeper = psutil.Process(keeper.ppid())
    keeper.kill()
    assert "SIGKILL" in await running
    await tools.pool.close()
    assert not any(map(alive, tools.pids()))


async def test_b05_a_keeper_ends_all_when_its_program_is_killed(tools: Tools) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.tools.owner", str(tools.folder), ALL), cwd=ROOT
    )
    await until(lambda: len(tools.pids()) == 6)
    owner.kill()
    await owner.wait()
    await until(lambda: not any(map(alive, tools.pids())))


async def test_keepers_leave_no_zombies_and_no_descriptors_behind(tools: Tools) -> None:
    us = psutil.Process()
    others = set(us.children(recursive=True))  # of other tests of this process
    await tools.bash("true")
    before = us.num_fds(), len(us.children(recursive=True))
    for _ in range(20):
        assert (await tools.bash("(setsid sh -c 'exit 1' &) ; exit 3")).startswith("Exit code 3")
    await until(lambda: (us.num_fds(), len(us.children(recursive=True))) == before)
    await tools.pool.close()
    assert set(us.children(recursive=True)) <= others
