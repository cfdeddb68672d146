"""Bash, BashOutput and KillShell with real processes: B01, B03, B04, B05, B08, B10, B11, E12, F06."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from letta_code.core.messages import Text
from letta_code.core.tooling import CommandDisplay, ToolOutput
from letta_code.errors import ToolError
from letta_code.tools.base import Call, Workspace, compact_schema
from letta_code.tools.processes.jobs import child_environment
from letta_code.tools.shell import Bash, BashOutput, KillShell, ShellPool

WAIT = 20.0  # seconds; only a deadline for what should happen at once


class Tools:
    def __init__(self, folder: Path, **environment: str) -> None:
        project = folder / "project"
        project.mkdir()
        self.workspace = Workspace(project, (project,), folder / "overflow", environment=environment)
        self.pool = ShellPool(self.workspace)
        self.progress: list[str] = []

    async def bash(self, command: str, **arguments: object) -> ToolOutput:
        tool = Bash(self.workspace, self.pool)
        return await tool.run(
            tool.arguments.model_validate({"command": command, **arguments}),
            Call("1", progress=self.progress.append),
        )

    async def output(self, shell_id: str, filter: str | None = None) -> str:
        tool = BashOutput(self.pool)
        return text(await tool.run(tool.arguments(bash_id=shell_id, filter=filter), Call("2")))

    async def stop(self, shell_id: str) -> str:
        tool = KillShell(self.pool)
        return text(await tool.run(tool.arguments(shell_id=shell_id), Call("3")))


def text(output: ToolOutput) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


def code(output: ToolOutput) -> int | None:
    (display,) = output.display
    assert isinstance(display, CommandDisplay)
    return display.exit_code


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids(folder: Path) -> list[int]:
    return [int(line) for line in folder.read_text().split()]


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Tools]:
    made = Tools(tmp_path)
    yield made
    await made.pool.close()


async def test_output_exit_code_and_status(tools: Tools) -> None:
    good = await tools.bash("echo out; echo err >&2")
    assert (text(good), good.status, code(good)) == ("out\nerr", "ok", 0)
    bad = await tools.bash("echo partial; exit 3")
    assert (text(bad), bad.status, code(bad)) == ("partial\nExit code 3", "error", 3)
    assert "SIGKILL" in text(await tools.bash("kill -9 $$"))
    assert text(await tools.bash("true")) == "(no output)"
    assert "".join(tools.progress) == "out\nerr\npartial\n"


async def test_each_call_is_a_fresh_shell_in_the_project(tools: Tools) -> None:
    await tools.bash("cd / && X=1")
    assert text(await tools.bash('pwd; echo "[$X]"')) == f"{tools.workspace.project}\n[]"


async def test_a_vanished_working_directory_is_said(tools: Tools) -> None:
    gone = await tools.bash('rmdir "$PWD"')
    assert "no longer exists" in text(gone)
    with pytest.raises(ToolError, match="does not exist any more"):
        await tools.bash("true")


@pytest.mark.parametrize(
    "child",
    [
        "sleep 300",
        "while :; do echo chatter; sleep 0.001; done",
        "setsid sleep 300",
        "sleep 300 >/dev/null 2>&1",
    ],
)
async def test_b01_returns_at_once_and_names_and_keeps_the_survivor(tools: Tools, child: str) -> None:
    async with asyncio.timeout(WAIT):
        result = await tools.bash(f"({child}) & echo $!; echo done")
    assert "done" in text(result)
    assert result.status == "ok"
    match = re.search(r"Still running as (bash_\d+): pid (\d+)", text(result))
    assert match, text(result)
    assert alive(int(match[2]))
    assert "background processes still run" in await tools.output(match[1])
    await tools.stop(match[1])
    assert not alive(int(match[2]))


async def test_b03_nothing_waits_for_an_answer(tools: Tools) -> None:
    async with asyncio.timeout(WAIT):
        assert text(await tools.bash("read x; echo $?")) == "1"
        assert (await tools.bash("cat < /dev/tty")).status == "error"
        assert text(await tools.bash("cat; tty; ps -o tty= -p $$ | tr -d ' '")) == "not a tty\n?"
        assert (await tools.bash("ssh -o ConnectTimeout=2 nohost.invalid true")).status == "error"


async def test_b03_git_neither_prompts_nor_pages_nor_edits(tools: Tools) -> None:
    async with asyncio.timeout(WAIT):
        await tools.bash("git init -q . && git config user.name a && git config user.email a@b")
        aborted = await tools.bash("git commit --allow-empty")
        assert "empty commit message" in text(aborted)
        asked = await tools.bash("printf 'protocol=https\\nhost=x\\n\\n' | git credential fill")
        assert "terminal prompts disabled" in text(asked)


async def test_b05_timeout_kills_the_whole_tree(tools: Tools) -> None:
    result = await tools.bash(
        "echo started; sleep 300 & echo $! >p; (setsid bash -c 'echo $$ >>p; sleep 300' &) ; "
        "trap '' TERM; while :; do sleep 0.05; done",
        timeout=700,
    )
    assert result.status == "error"
    assert text(result).startswith("started\nTimed out after 0.7 s")
    found = pids(tools.workspace.project / "p")
    assert len(found) == 2
    assert not any(map(alive, found))


async def test_b05_cancel_kills_the_whole_tree(tools: Tools) -> None:
    written = tools.workspace.project / "p"
    task = asyncio.create_task(
        tools.bash("echo $$ >p; bash -c 'sleep 300 & echo $! >>p; echo $$ >>p; sleep 300'; true")
    )
    await until(lambda: written.exists() and len(pids(written)) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(map(alive, pids(written)))


async def test_b05_close_ends_a_double_forked_child_and_f06_says_so(tools: Tools) -> None:
    written = tools.workspace.project / "p"
    await tools.bash(
        "((setsid bash -c 'echo $$ >p; exec sleep 300' >/dev/null 2>&1 &) &)", run_in_background=True
    )
    await until(lambda: written.exists() and pids(written))
    said = await tools.pool.close()
    assert len(said) == 1
    assert "setsid bash" in said[0]
    assert not any(map(alive, pids(written)))
    assert await tools.pool.close() == ()


async def test_kill_now_needs_no_event_loop(tools: Tools) -> None:
    await tools.bash("trap '' TERM; echo $$ >p; sleep 300; true", run_in_background=True)
    written = tools.workspace.project / "p"
    await until(lambda: written.exists() and pids(written))
    await asyncio.to_thread(tools.pool.kill_now)
    assert not any(map(alive, pids(written)))


async def test_b08_bytes_that_are_no_utf8_in_any_locale(tools: Tools) -> None:
    result = await tools.bash(r"export LC_ALL=C; printf '\xff\xfe ĳ'; printf '\033[31mred\033[0m'")
    assert text(result) == "\ufffd\ufffd ĳred"


async def test_b10_a_flood_is_bounded_in_memory_and_in_the_result(tools: Tools) -> None:
    before = psutil.Process().memory_info().rss
    result = await tools.bash("yes | head -c 200000000; echo END")
    assert len(text(result)) <= 30_000
    assert text(result).endswith("y\nEND")
    assert "200,000,004 characters" in text(result)
    assert sum(map(len, tools.progress)) < 5_000_000
    assert psutil.Process().memory_info().rss - before < 100_000_000
    million = text(await tools.bash("yes '' | head -n 1000000"))
    assert "1,000,000 lines" in million


async def test_b11_a_long_command(tools: Tools) -> None:
    result = await tools.bash(f"x='{'ĳ' * 150_000}'; echo ${{#x}}; exit 4", timeout=20_000)
    assert text(result) == "150000\nExit code 4"
    assert list(tools.workspace.overflow.glob("command-*")) == []


async def test_a_background_shell_is_read_step_by_step(tools: Tools) -> None:
    project = tools.workspace.project
    os.mkfifo(project / "go")
    started = await tools.bash("echo one; read x <go; echo two; echo three; exit 7", run_in_background=True)
    assert "bash_1" in text(started)
    seen = ""

    async def read_until(needle: str, filter: str | None = None) -> None:
        nonlocal seen
        async with asyncio.timeout(WAIT):
            while needle not in seen:
                seen += await tools.output("bash_1", filter)

    await read_until("one\n")
    assert "running" in seen
    seen = ""
    await asyncio.to_thread((project / "go").write_text, "\n")
    await read_until("exit code 7", "^thr")
    assert "three" in seen
    assert "two" not in seen
    assert "one" not in seen
    assert "(no new output)" in await tools.output("bash_1")
    assert "already ended" in await tools.stop("bash_1")


async def test_unknown_shells_and_bad_filters_are_errors_for_the_model(tools: Tools) -> None:
    with pytest.raises(ToolError, match="bash_9"):
        await tools.output("bash_9")
    await tools.bash("true", run_in_background=True)
    with pytest.raises(ToolError, match="regex parse error"):
        await tools.output("bash_1", "(")


async def test_no_filter_takes_for_ever(tools: Tools) -> None:
    await tools.bash("echo one; echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", run_in_background=True)
    await until(lambda: not tools.pool.running())
    async with asyncio.timeout(WAIT):
        assert "no new output" in await tools.output("bash_1", "(a+)+$")
    assert list(tools.workspace.overflow.iterdir()) == []


async def test_a_background_timeout_is_said(tools: Tools) -> None:
    await tools.bash("echo $$ >p; sleep 300; true", run_in_background=True, timeout=300)
    seen = ""
    async with asyncio.timeout(WAIT):
        while "killed after its timeout" not in seen:
            seen = await tools.output("bash_1")
            await asyncio.sleep(0.01)
    await until(lambda: not any(map(alive, pids(tools.workspace.project / "p"))))


async def test_e12_a_git_hooks_variables_do_not_reach_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(other)], check=True)
    for name, value in {
        "GIT_DIR": other / ".git",
        "GIT_WORK_TREE": other,
        "GIT_INDEX_FILE": other / "i",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ada")
    tools = Tools(tmp_path, AGENT_ID="agent-1")
    result = await tools.bash(
        "git init -q . && git rev-parse --show-toplevel; echo $GIT_AUTHOR_NAME $AGENT_ID"
    )
    assert text(result) == f"{tools.workspace.project}\nAda agent-1"
    await tools.pool.close()


def test_the_persons_askpass_is_kept(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, (), tmp_path)
    assert child_environment(workspace, {"GIT_ASKPASS": "/x"})["GIT_ASKPASS"] == "/x"
    assert child_environment(workspace, {})["GIT_ASKPASS"] == ""


def test_reading_commands_have_no_effects(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, (), tmp_path)
    tool = Bash(workspace, ShellPool(workspace))
    assert not tool.has_effects(tool.arguments(command="git status"))
    assert tool.has_effects(tool.arguments(command="touch p"))


def test_the_three_tools_are_cheap_to_describe(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, (), tmp_path)
    pool = ShellPool(workspace)
    size = sum(
        len(tool.description()) + len(str(compact_schema(tool.arguments)))
        for tool in (Bash(workspace, pool), BashOutput(pool), KillShell(pool))
    )
    assert size < 1_800  # characters; about 450 tokens
