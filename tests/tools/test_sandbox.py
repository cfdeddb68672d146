"""The sandbox with the real bubblewrap: what commands in it can and cannot do, and that none runs without.

The project, a folder outside and our own folders are siblings; TMPDIR is beside them, so that the system's
temporary folder, in which all of it may be, is not open by itself.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from letta_code.core.messages import Text
from letta_code.core.tooling import CommandDisplay, ToolOutput
from letta_code.errors import ToolError
from letta_code.paths import Paths
from letta_code.settings.loading import SandboxSettings
from letta_code.tools.base import Call, Workspace
from letta_code.tools.processes.sandbox import Sandbox, find_sandbox
from letta_code.tools.shell import Bash, BashOutput, KillShell, ShellPool

WAIT = 20.0  # seconds; only a deadline for what should happen at once
GIT = "git -c user.name=a -c user.email=a@b -c commit.gpgsign=false"


class Inside:
    """Bash in a sandbox around `project`."""

    def __init__(self, folder: Path, project: Path, settings: SandboxSettings, *more: Path) -> None:
        self.project = project
        self.environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "HOME": str(folder)}
        self.paths = Paths.from_environment({"LETTA_HOME": str(folder / "letta")})
        folders = (project, *more)
        self.sandbox = find_sandbox(settings, self.paths, self.environment, folders)
        assert not self.sandbox.problem, (
            f"these tests need bubblewrap that works: {self.sandbox.problem}; {self.sandbox.cure}"
        )
        home = self.paths.memfs / "org" / "agent"
        self.workspace = Workspace(
            project,
            (*folders, home / "memory"),
            self.paths.cache / "overflow" / "mine",
            home / "memory" if home.exists() else None,
            self.environment | {"MEMORY_DIR": str(home / "memory")},
            self.sandbox.showing(home / "repo.git"),
        )
        self.pool = ShellPool(self.workspace)
        self.tool = Bash(self.workspace, self.pool)

    async def run(self, command: str, **arguments: object) -> ToolOutput:
        call = self.tool.arguments.model_validate({"command": command, **arguments})
        return await self.tool.run(call, Call("1"))

    async def __call__(self, command: str, **arguments: object) -> str:
        return text(await self.run(command, **arguments))

    async def output(self, shell_id: str) -> str:
        tool = BashOutput(self.pool)
        return text(await tool.run(tool.arguments(bash_id=shell_id), Call("2")))

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


def git(folder: Path, *words: str) -> str:
    command = [*shlex.split(GIT), "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def running(words: str) -> list[int]:
    """Pids, as seen from outside, of living processes with these words in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            if words in line and "bwrap" not in line and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def sleep(number: int) -> str:
    """A command that lasts, and can be told from those of other runs of these tests."""
    return f"sleep {540 + number}.{os.getpid()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tmp", "project", "outside", "letta/data", "letta/config"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside" / "file").write_text("outside")
    return tmp_path


class Make:
    """Opens sandboxes, by default around the project; the fixture closes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Inside] = []

    def __call__(self, project: Path | None = None, *more: Path, **settings: Any) -> Inside:
        chosen = SandboxSettings(True, **settings)
        self.made.append(Inside(self.folder, project or self.folder / "project", chosen, *more))
        return self.made[-1]


@pytest.fixture
async def make(folder: Path) -> AsyncIterator[Make]:
    maker = Make(folder)
    yield maker
    for made in maker.made:
        await made.pool.close()


@pytest.fixture
def inside(make: Make) -> Inside:
    return make()


# Files --------------------------------------------------------------------------------------------


async def test_only_the_project_and_temporary_files_can_be_written(inside: Inside, folder: Path) -> None:
    assert await inside("echo a > here && echo b > $TMPDIR/there && mktemp >name && cat here") == "a"
    assert (folder / "project" / "here").read_text() == "a\n"
    assert (folder / "tmp" / "there").exists()
    assert "Read-only file system" in await inside("mkdir /run/new")
    for path in (folder / "outside" / "new", folder / "outside" / "file", folder / "new", Path("/new")):
        said = await inside(f"echo x > {path}")
        assert "Read-only file system" in said
        assert "This may be the sandbox: in it only the project" in said
    assert await inside(f"cat {folder}/outside/file") == "outside"
    assert "Exit code" in await inside(f"rm -rf {folder}/outside; test ! -e {folder}/outside")
    assert (folder / "outside" / "file").read_text() == "outside"


async def test_our_own_folders_are_not_there(folder: Path, make: Make) -> None:
    data = folder / "letta" / "data"
    (data / "conversation.jsonl").write_text("private")
    (folder / "letta" / "config" / "settings.json").write_text("{}")
    (folder / "letta" / "config" / "skills").mkdir()
    (folder / "letta" / "config" / "skills" / "one.md").write_text("skill")
    other, mine = (folder / "letta" / "memfs" / "org" / name for name in ("other", "agent"))
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "secret.md").write_text("private")
    repository(mine / "memory")
    (mine / "memory" / ".git").rename(mine / "repo.git")
    (mine / "memory" / ".git").write_text("gitdir: ../repo.git\n")
    git(mine / "repo.git", "config", "core.bare", "false")
    git(mine / "repo.git", "config", "core.worktree", "../memory")
    inside = make()
    found = await inside(f"find {folder}/letta -type f -not -path '*/repo.git/*' | sort")
    memory = mine / "memory"
    assert found.split() == [
        str(folder / "letta" / "config" / "skills" / "one.md"),
        str(memory / ".git"),
        str(memory / "file"),
    ]
    assert "first" in await inside("cd $MEMORY_DIR && git log --oneline && echo draft >> file && git diff")
    assert (memory / "file").read_text() == "one\ndraft\n"
    for command in (
        f"cd $MEMORY_DIR && {GIT} commit -qam past-the-hooks",
        "echo x > $MEMORY_DIR/../repo.git/hooks/pre-commit",
        "echo gitdir: /elsewhere > $MEMORY_DIR/.git",
        "mv $MEMORY_DIR/.git $MEMORY_DIR/git",
        f"mkdir {folder}/letta/data/new",
        f"mkdir {folder}/letta/memfs/org/new",
        f"echo '{{}}' > {folder}/letta/config/settings.json",
        f"umount {folder}/letta/data",
    ):
        assert "Exit code" in await inside(command), command
    assert git(memory, "log", "--format=%s").split() == ["first"]


async def test_a_project_that_is_home_hides_what_is_ours_and_keeps_what_others_obey(
    folder: Path, make: Make
) -> None:
    (folder / ".bashrc").write_text("mine")
    (folder / ".ssh").mkdir()
    before = os.environ["HOME"]
    os.environ["HOME"] = str(folder)
    try:
        inside = make(folder)
        (folder / "letta" / "data" / "x").write_text("private")
        assert "No such file" in await inside("cat letta/data/x")
        for command in ("echo x >> .bashrc", "echo x > .ssh/authorized_keys", "echo x > letta/config/x"):
            assert "Read-only file system" in await inside(command), command
        assert await inside("echo x > anything && cat anything") == "x"
    finally:
        os.environ["HOME"] = before
    assert (folder / ".bashrc").read_text() == "mine"


@pytest.mark.parametrize("name", ["with space", "文件夹 é", "new\nline", "-dash'\"$x"])
async def test_any_name_of_a_project(folder: Path, name: str, make: Make) -> None:
    project = repository(folder / name)
    inside = make(project)
    assert await inside(f"pwd && {GIT} commit -q --allow-empty -m second && git log -1 --format=%s") == (
        f"{project}\nsecond"
    )
    assert "Read-only" in await inside("echo x > ../outside/new")


async def test_a_project_by_a_link(folder: Path, make: Make) -> None:
    (folder / "link").symlink_to(folder / "project")
    (folder / "project" / "out").symlink_to(folder / "outside")
    inside = make(folder / "link")
    assert await inside("pwd -P && echo a > file && cat file") == f"{folder}/project\na"
    assert "Read-only" in await inside("echo x > out/new")


async def test_added_and_configured_folders(folder: Path, make: Make) -> None:
    for name in ("added", "configured", "home"):
        (folder / name).mkdir()
    write = (str(folder / "configured"), "../missing", "~/.nothing-here")
    inside = make(folder / "project", folder / "added", write=write)
    assert await inside("touch ../added/a ../configured/b && echo done") == "done"
    assert "Read-only" in await inside("mkdir ../missing")
    (folder / "missing").mkdir()  # by the person, later
    assert await inside("touch ../missing/c && echo done") == "done"


async def test_our_settings_in_the_project_are_read_only(folder: Path, make: Make) -> None:
    (folder / "project" / ".letta").mkdir()
    inside = make()
    assert "Read-only" in await inside("echo '{}' > .letta/settings.local.json")
    assert "Exit code" in await inside("mv .letta other")


async def test_a_project_inside_our_folders_can_only_be_read(folder: Path, make: Make) -> None:
    project = folder / "letta" / "data" / "looked-at"
    project.mkdir()
    (folder / "letta" / "data" / "other").write_text("private")
    inside = make(project)
    assert await inside("ls -A ..") == "looked-at"
    assert "Read-only" in await inside("touch x")


# Git ----------------------------------------------------------------------------------------------


async def test_git_works_but_what_git_obeys_is_read_only(folder: Path, make: Make) -> None:
    project = repository(folder / "project")
    inside = make(project)
    worked = f"echo two > file && {GIT} commit -qam second && git switch -qc branch && git stash list"
    assert await inside(worked) == "(no output)"
    assert git(project, "log", "-1", "--format=%s").strip() == "second"
    for command in (
        "echo 'touch /tmp/pwned' > .git/hooks/pre-commit",
        "git config core.fsmonitor evil",
        "echo '[core]' >> .git/config",
        "rm -f .git/config",
        "mv .git old && cp -r old .git",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/other",
    ):
        assert "Exit code" in await inside(command), command
    assert "fsmonitor" not in (project / ".git" / "config").read_text()
    assert not (project / ".git" / "hooks" / "pre-commit").exists()


async def test_a_repository_is_not_led_to_another_configuration(folder: Path, make: Make) -> None:
    project = repository(folder / "project")
    inside = make(project)
    lead = "cp -r .git evil && echo x > evil/hooks/pre-commit && echo ../evil > .git/commondir"
    assert "Removed" in await inside(lead)
    assert git(project, "rev-parse", "--git-common-dir") == ".git\n"
    await inside(f"sleep 0.01; {lead}", run_in_background=True)
    await until((project / ".git" / "commondir").exists)
    await inside.pool.close()
    assert git(project, "rev-parse", "--git-common-dir") == ".git\n"


async def test_a_project_inside_a_repository_with_hooks_elsewhere(folder: Path, make: Make) -> None:
    top = repository(folder / "project")
    (top / "sub").mkdir()
    (top / "sub" / "husky").mkdir()
    git(top, "config", "core.hooksPath", "sub/husky")
    inside = make(top / "sub")
    assert await inside(f"echo a > a && git add a && {GIT} commit -qm second && git log -1 --format=%s") == (
        "second"
    )
    assert "Read-only" in await inside("echo x > husky/pre-commit")
    assert "Read-only" in await inside("echo x > ../file")
    assert "Exit code" in await inside("echo x > ../.git/hooks/post-commit")


async def test_a_worktree_and_a_submodule_can_commit(folder: Path, make: Make) -> None:
    top = repository(folder / "top")
    git(top, "worktree", "add", "-q", str(folder / "tree"))
    git(top, "submodule", "add", "-q", str(repository(folder / "library")), "module")
    for project in (folder / "tree", top / "module"):
        inside = make(project)
        done = f"echo two > file && {GIT} commit -qam second && git log -1 --format=%s"
        assert await inside(done) == "second", project
        where = git(project, "rev-parse", "--git-common-dir").strip()
        assert "Exit code" in await inside(f"echo x > {where}/hooks/post-commit")
        assert "Exit code" in await inside(f"echo x >> {where}/config")
        assert "Exit code" in await inside("echo gitdir: ../outside > .git")


async def test_a_forged_git_file_opens_nothing(folder: Path, make: Make) -> None:
    victim = repository(folder / "victim")
    (folder / "project" / ".git").write_text(f"gitdir: {victim}/.git\n")
    inside = make()
    assert "Read-only" in await inside(f"echo x > {victim}/.git/description")
    assert "Exit code" in await inside(f"{GIT} commit -q --allow-empty -m second")
    assert git(victim, "log", "--format=%s").split() == ["first"]


# Processes ----------------------------------------------------------------------------------------


async def test_exit_codes_and_signals_are_those_of_the_command(inside: Inside) -> None:
    commands = {"exit 77": 77, "kill -9 $$": 137, "kill -TERM $$": 143, "true": 0, "no-such-program": 127}
    for command, wanted in commands.items():
        assert code(await inside.run(command)) == wanted, command
    assert "Exit code 137 (SIGKILL)" in await inside("kill -9 $$")


async def test_a_long_command_runs_from_a_file(inside: Inside) -> None:
    assert await inside("echo start\n" + "# filler\n" * 20_000 + "echo end") == "start\nend"


async def test_a_command_sees_and_ends_no_process_outside(inside: Inside) -> None:
    assert int(await inside("ls -d /proc/[0-9]* | wc -l")) < 10
    said = await inside(f"kill -9 {os.getpid()} {os.getppid()}; kill -9 -1; echo on")
    assert said.count("No such process") == 3
    assert psutil.pid_exists(os.getppid())


async def test_what_a_command_leaves_is_a_background_shell_and_can_be_stopped(inside: Inside) -> None:
    shown = f"until pgrep -f '^{sleep(1)}' >/dev/null; do :; done"
    said = await inside(f"{sleep(1)} & {shown}; echo started")
    assert "started\nStill running as bash_1: pid " in said
    assert f"({sleep(1)})" in said
    assert len(running(sleep(1))) == 1
    assert "Stopped bash_1" in await inside.stop("bash_1")
    assert running(sleep(1)) == []
    assert await inside("true & wait; echo nothing left") == "nothing left"


async def test_no_process_survives_however_it_hides(inside: Inside) -> None:
    def hiding(first: int) -> str:
        return (
            f"setsid env -i bash -c 'exec -a bwrap {sleep(first)}' & "
            f"setsid env -i sh -c '{sleep(first + 1)} & {sleep(first + 1)}' & {sleep(first + 2)}"
        )

    left = hiding(2)
    shown = f"until pgrep -f '^{sleep(4)}'; do :; done"
    assert "Still running" in await inside(f"bash -c {shlex.quote(left)} >/dev/null & {shown}")
    assert "Timed out after 0.3 s" in await inside(hiding(5), timeout=300)
    assert [pid for number in (5, 6, 7) for pid in running(sleep(number))] == []
    assert running(sleep(4))
    await inside.pool.close()
    assert [pid for number in (2, 3, 4) for pid in running(sleep(number))] == []


async def test_background_shells(inside: Inside) -> None:
    said = await inside("echo ready; mkfifo end; cat end; exit 5", run_in_background=True)
    assert "Started in the background as bash_1" in said
    await until((inside.project / "end").exists)
    said = await inside.output("bash_1")
    assert said.startswith("[bash_1: running")
    assert said.endswith("ready\n")
    assert await inside("echo over > end") == "(no output)"
    await until(lambda: inside.pool.get("bash_1").job.exit_code is not None)
    said = await inside.output("bash_1")
    assert said.startswith("[bash_1: exit code 5")
    assert said.endswith("over\n")
    await inside(sleep(8), run_in_background=True, timeout=60_000)
    await until(lambda: running(sleep(8)))
    assert "Stopped bash_2" in await inside.stop("bash_2")
    assert running(sleep(8)) == []


# Doors --------------------------------------------------------------------------------------------


async def test_sockets_by_which_programs_outside_take_commands_are_closed(folder: Path, make: Make) -> None:
    (folder / "tmp" / "tmux-0").mkdir()
    door = folder / "tmp" / "tmux-0" / "default"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(door))
        listening.listen()
        inside = make()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({str(door)!r})"
        assert "Error" in await inside(f"{sys.executable} -c {shlex.quote(connect)}")
        assert "Exit code" in await inside(f"rm {door}")
        assert door.is_socket()
    assert await inside(
        "ls -A /run | grep -v -e systemd -e current-system -e opengl -e resolv -e Network"
    ) in (
        "",
        "Exit code 1",
    )


async def test_root_inside_is_not_root_of_the_machine(inside: Inside) -> None:
    for command in (
        "echo core > /proc/sys/kernel/core_pattern",
        "mount -o remount,rw /",
        "mknod device b 8 0",
        "unshare -rm mount -o remount,rw / ",
        "echo x > /sys/kernel/uevent_helper",
    ):
        assert "Exit code" in await inside(command), command
    assert await inside("ls /dev | grep -E '^(sd|vd|nvme|mem$|kmsg)' | wc -l") == "0"


async def test_network_on_and_off(folder: Path, inside: Inside, make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        knock = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo open"
        assert await inside(knock) == "open"
        alone = make(network=False)
        assert "There is no network" in alone.tool.description()
        assert "open" not in await alone(knock)
        own = "import socket as s; a = s.create_server(('', 0)); s.create_connection(a.getsockname())"
        assert await alone(f"{sys.executable} -c {shlex.quote(own)} && echo loopback") == "loopback"
        said = await alone("echo 'curl: (6) Could not resolve host: example.org'; exit 6")
        assert "in it there is no network" in said


# Missing ------------------------------------------------------------------------------------------


def program(folder: Path, words: str) -> dict[str, str]:
    """An environment whose `bwrap` is the shell script `words`; without words there is none."""
    (folder / "bin").mkdir()
    if words:
        (folder / "bin" / "bwrap").write_text(f"#!/bin/sh\n{words}\n")
        (folder / "bin" / "bwrap").chmod(0o700)
    return {"PATH": str(folder / "bin"), "TMPDIR": str(folder / "tmp")}


def found(folder: Path, words: str, project: Path | None = None) -> Sandbox:
    paths = Paths.from_environment({"LETTA_HOME": str(folder / "letta")})
    place = project or folder / "project"
    return find_sandbox(SandboxSettings(True), paths, program(folder, words), (place,))


async def test_without_bubblewrap_no_command_runs(folder: Path) -> None:
    sandbox = found(folder, "")
    assert "not installed" in sandbox.problem
    assert "apt-get install bubblewrap" in sandbox.cure
    workspace = Workspace(folder / "project", (folder / "project",), folder / "overflow", sandbox=sandbox)
    pool = ShellPool(workspace)
    tool = Bash(workspace, pool)
    for background in (False, True):
        with pytest.raises(ToolError, match="no command can run: the sandbox is asked for"):
            await tool.run(tool.arguments(command="touch ran", run_in_background=background), Call("1"))
    assert list((folder / "project").iterdir()) == []
    await pool.close()


def test_without_namespaces_it_says_so(folder: Path) -> None:
    refusal = "bwrap: No permissions to create a new namespace, likely because the kernel does not allow it"
    sandbox = found(
        folder, f'[ "$1" = --version ] && echo bubblewrap 1.0 && exit; echo "{refusal}" >&2; exit 1'
    )
    assert "does not work here (bwrap: No permissions to create a new namespace" in sandbox.problem
    assert "user namespaces" in sandbox.cure


def test_around_the_whole_file_system_there_is_none(folder: Path) -> None:
    assert "the whole file system" in found(folder, "exit 0", project=Path("/")).problem


def test_a_bubblewrap_that_commands_could_have_written_is_not_used(folder: Path) -> None:
    assert "where commands may write" in found(folder, "exit 0", project=folder).problem
