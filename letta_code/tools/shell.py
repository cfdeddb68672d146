"""Bash, BashOutput and KillShell: commands in the foreground and in the background.

A foreground command that leaves processes behind becomes a background shell, so that they can be seen
and stopped. How processes are run is `processes`; whether a command may run is `permissions`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from letta_code.core.text import one_line
from letta_code.core.tooling import CommandDisplay, PlainDisplay, ToolKind, ToolOutput
from letta_code.errors import ToolError
from letta_code.tools.base import Access, Arguments, Call, Tool, Workspace
from letta_code.tools.output import Spool
from letta_code.tools.processes.jobs import Job, Survivor
from letta_code.tools.processes.keeping import Keeper
from letta_code.tools.ripgrep import Ripgrep
from letta_code.tools.shell_code.reading import only_reads

DEFAULT_TIMEOUT = 120_000
"""Milliseconds a foreground command may take."""

MAX_TIMEOUT = 600_000
"""The most a call may ask for, in milliseconds."""

MAX_BACKGROUND = 32
"""Shells that may run in the background at once."""

_DISPLAY_LIMIT = 10_000  # characters of output in a display


@dataclass(slots=True)
class Shell:
    """A job in the background, by the id the model knows."""

    id: str
    job: Job
    killer: asyncio.Task[None] | None = field(default=None, repr=False)
    note: str = ""


class ShellPool:
    """All commands of a conversation that run: foreground and background."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._shells: dict[str, Shell] = {}
        self._keeper = Keeper()
        self._foreground: set[Job] = set()
        self._count = 0

    def start(self, command: str, call: Call) -> Job:
        """Start a foreground command; `finished` or `adopt` must follow.

        Raises:
            ToolError: it cannot be started.
        """
        job = Job.start(command, self.workspace, self._keeper, call.progress)
        self._foreground.add(job)
        return job

    def finished(self, job: Job) -> None:
        """Nothing of a foreground command is left."""
        job.release()
        self._foreground.discard(job)

    def adopt(self, job: Job) -> Shell:
        """Keep a job as a background shell."""
        self._foreground.discard(job)
        self._count += 1
        shell = Shell(f"bash_{self._count}", job)
        self._shells[shell.id] = shell
        return shell

    def background(self, command: str, seconds: float | None) -> Shell:
        """Start a command in the background; it is killed after `seconds`, when given.

        Raises:
            ToolError: too many run already, or it cannot be started.
        """
        if len(self.running()) >= MAX_BACKGROUND:
            raise ToolError(f"{MAX_BACKGROUND} background shells run already; stop one with KillShell first")
        shell = self.adopt(Job.start(command, self.workspace, self._keeper, _no_progress))
        if seconds is not None:
            shell.killer = asyncio.create_task(_kill_late(shell, seconds))
        return shell

    def get(self, shell_id: str) -> Shell:
        """The shell with this id. Raises `ToolError` when there is none."""
        if shell_id not in self._shells:
            known = ", ".join(self._shells) or "none"
            raise ToolError(f"there is no background shell {shell_id!r}; there are: {known}")
        return self._shells[shell_id]

    def running(self) -> tuple[Shell, ...]:
        """Background shells with a living process."""
        return tuple(shell for shell in self._shells.values() if shell.job.survivors())

    async def close(self) -> tuple[str, ...]:
        """Kill everything. One line for each background shell that was still running: what the person
        is told."""
        ended = tuple(
            f"stopped background command {shell.id}: {one_line(shell.job.command)}"
            for shell in self.running()
        )
        jobs = [*self._foreground, *(shell.job for shell in self._shells.values())]
        for shell in self._shells.values():
            if shell.killer is not None:
                shell.killer.cancel()
        self._foreground.clear()
        self._shells.clear()
        try:
            await asyncio.gather(*(job.kill() for job in jobs))
        finally:
            for job in jobs:
                job.kill_now()
            self._keeper.close()
            if self.workspace.sandbox is not None:
                self.workspace.sandbox.sweep()
        return ended

    def kill_now(self) -> None:
        """Kill everything at once, without an event loop: for signal handlers and last resorts."""
        for job in (*self._foreground, *(shell.job for shell in self._shells.values())):
            job.kill_now()


async def _kill_late(shell: Shell, seconds: float) -> None:
    if not await shell.job.wait(seconds):
        shell.note = f"killed after its timeout of {_duration(seconds)}"
        await shell.job.kill()


def _no_progress(text: str) -> None:
    """A background command's output is read with BashOutput."""


class BashArguments(Arguments):
    """Arguments of Bash."""

    command: str = Field(min_length=1)
    description: Annotated[str | None, Field(description="5-10 words, for the user")] = None
    timeout: Annotated[
        int | None, Field(ge=1, le=MAX_TIMEOUT, description=f"ms, default {DEFAULT_TIMEOUT}")
    ] = None
    run_in_background: bool = False


class Bash(Tool[BashArguments]):
    """Runs a command with bash."""

    name: ClassVar[str] = "Bash"
    kind: ClassVar[ToolKind] = "execute"
    arguments = BashArguments

    def __init__(self, workspace: Workspace, shells: ShellPool) -> None:
        self._workspace = workspace
        self._shells = shells

    def description(self) -> str:
        """With what the sandbox forbids, where there is one."""
        sandbox = self._workspace.sandbox
        told = "" if sandbox is None else f" {sandbox.description(self._workspace)}"
        return super().description() + told

    def has_effects(self, arguments: BashArguments) -> bool:
        """A command that is known to only read may run beside others."""
        return arguments.run_in_background or not only_reads(arguments.command)

    def accesses(self, arguments: BashArguments) -> tuple[Access, ...]:
        """The command."""
        return (Access("command", arguments.command),)

    def title(self, arguments: BashArguments) -> str:
        """The command on one line."""
        return f"Run: {one_line(arguments.command)}"

    def preview(self, arguments: BashArguments) -> tuple[CommandDisplay, ...]:
        """The whole command."""
        return (CommandDisplay(arguments.command, "", None),)

    async def run(self, arguments: BashArguments, call: Call) -> ToolOutput:
        """Run it and wait for it, or start it in the background."""
        undo = self._workspace.undo if self.has_effects(arguments) else None
        running = None if undo is None else await undo.before_command(call, arguments.command)
        if arguments.run_in_background:
            seconds = None if arguments.timeout is None else arguments.timeout / 1000
            shell = self._shells.background(arguments.command, seconds)
            text = (
                f"Started in the background as {shell.id}: BashOutput reads its output, KillShell stops it."
            )
            return ToolOutput.of(text, CommandDisplay(arguments.command, text, None))
        try:
            return await self._foreground(arguments, call)
        finally:  # also when it is interrupted: by then all that it started was killed
            if undo is not None:
                await undo.after_command(running)

    async def _foreground(self, arguments: BashArguments, call: Call) -> ToolOutput:
        seconds = (arguments.timeout or DEFAULT_TIMEOUT) / 1000
        job = self._shells.start(arguments.command, call)
        try:
            done = await job.wait(seconds)
            if not done:
                await job.kill()
        except BaseException:
            await job.kill()
            self._shells.finished(job)
            raise
        survivors = job.survivors() if done else ()
        output = job.take_unread()
        notes = []
        if not done:
            notes.append(f"Timed out after {_duration(seconds)}; the command and all it started were killed.")
        elif job.exit_code:
            notes.append(_exit_note(job.exit_code))
        if (sandbox := self._workspace.sandbox) is not None:
            if done and (job.exit_code or "|" in arguments.command):
                notes += sandbox.explanation(output.finish(), self._workspace)
            notes += sandbox.sweep()
        if survivors:
            notes.append(_survivor_note(survivors, self._shells.adopt(job).id))
        else:
            self._shells.finished(job)
        if not self._workspace.project.is_dir():
            notes.append(f"The working directory {self._workspace.project} no longer exists.")
        return _result(arguments.command, output, notes, job.exit_code if done else None, failed=not done)

    async def close(self) -> tuple[str, ...]:
        """End what commands left running, and the keeper."""
        return await self._shells.close()


def _result(command: str, output: Spool, notes: list[str], code: int | None, *, failed: bool) -> ToolOutput:
    text = output.finish()
    content = "\n".join([*([text.removesuffix("\n")] if text.strip() else []), *notes])
    shown = (
        text
        if len(text) <= _DISPLAY_LIMIT
        else text[: _DISPLAY_LIMIT // 2] + "\n…\n" + text[-_DISPLAY_LIMIT // 2 :]
    )
    display = CommandDisplay(command, "\n".join([shown.removesuffix("\n"), *notes]).strip("\n"), code)
    return ToolOutput.of(content, display, status="error" if failed or code else "ok")


def _exit_note(code: int) -> str:
    if code > 128:
        try:
            return f"Exit code {code} ({signal.Signals(code - 128).name})"
        except ValueError:
            pass  # a plain exit code above 128
    return f"Exit code {code}"


def _survivor_note(survivors: tuple[Survivor, ...], shell_id: str) -> str:
    named = "; ".join(f"{survivor.pid} ({survivor.command})" for survivor in survivors[:10])
    more = f" and {len(survivors) - 10} more" if len(survivors) > 10 else ""
    return f"Still running as {shell_id}: pid {named}{more}. BashOutput reads its output, KillShell stops it."


def _duration(seconds: float) -> str:
    return f"{seconds:g} s"


class BashOutputArguments(Arguments):
    """Arguments of BashOutput."""

    bash_id: str
    filter: Annotated[str | None, Field(description="regex: only lines that match")] = None


class BashOutput(Tool[BashOutputArguments]):
    """Reads what a background shell printed since the last time."""

    name: ClassVar[str] = "BashOutput"
    kind: ClassVar[ToolKind] = "read"
    arguments = BashOutputArguments

    def __init__(self, shells: ShellPool) -> None:
        self._shells = shells

    def has_effects(self, arguments: BashOutputArguments) -> bool:
        """What was read is not given again, so such calls run in order."""
        return True

    def title(self, arguments: BashOutputArguments) -> str:
        """Which shell."""
        return f"Output of {one_line(arguments.bash_id)}"

    async def run(self, arguments: BashOutputArguments, call: Call) -> ToolOutput:
        """Its state, and the new output."""
        shell = self._shells.get(arguments.bash_id)
        if arguments.filter:
            await self._matching(Path(os.devnull), arguments.filter)  # refused before output is taken
        code = shell.job.exit_code
        running = bool(shell.job.survivors())
        if code is not None:
            await shell.job.wait(0)
        output = shell.job.take_unread()
        if not running and code is not None:
            shell.job.release()
        state = "running" if code is None else _exit_note(code).lower()
        if code is not None and running:
            state += ", its background processes still run"
        age = _duration(round(time.monotonic() - shell.job.started, 1))
        state = f"[{shell.id}: {shell.note or state}, {age}]"
        text = await self._filtered(output, arguments.filter) if arguments.filter else output.finish()
        content = f"{state}\n{text if text.strip() else '(no new output)'}"
        return ToolOutput.of(content, CommandDisplay(shell.job.command, text[-_DISPLAY_LIMIT:], code))

    async def _filtered(self, output: Spool, expression: str) -> str:
        with output.in_file() as file:
            return await self._matching(file, expression)

    async def _matching(self, file: Path, expression: str) -> str:
        """The matching lines. Ripgrep looks for them: its time is bounded whatever the expression."""
        workspace = self._shells.workspace
        kept = Spool(workspace, "BashOutput")
        search = Ripgrep(
            [
                "--text",
                "--no-line-number",
                "--no-filename",
                "--color=never",
                "-e",
                expression,
                "--",
                str(file),
            ],
            workspace.project if workspace.project.is_dir() else Path("/"),
            workspace.our_environment(),
        )
        async for line in search.records(b"\n"):
            kept.add(line.decode("utf-8", "replace") + "\n")
        if search.cut:
            kept.add(f"[{search.cut}]\n")
        kept.close()
        return kept.finish()


class KillShellArguments(Arguments):
    """Arguments of KillShell."""

    shell_id: str


class KillShell(Tool[KillShellArguments]):
    """Ends a background shell and all it started."""

    name: ClassVar[str] = "KillShell"
    kind: ClassVar[ToolKind] = "other"
    arguments = KillShellArguments

    def __init__(self, shells: ShellPool) -> None:
        self._shells = shells

    def title(self, arguments: KillShellArguments) -> str:
        """Which shell."""
        return f"Stop {one_line(arguments.shell_id)}"

    async def run(self, arguments: KillShellArguments, call: Call) -> ToolOutput:
        """End it; its last output can still be read."""
        shell = self._shells.get(arguments.shell_id)
        survivors = shell.job.survivors()
        if not survivors:
            return ToolOutput.of(f"{shell.id} had already ended.")
        shell.note = shell.note or "stopped"
        await shell.job.kill()
        text = f"Stopped {shell.id} ({one_line(shell.job.command)})."
        return ToolOutput.of(text, PlainDisplay(text))
