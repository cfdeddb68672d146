"""Running a shell command so that it can neither hang nor outlive us.

A command runs in its own session: no controlling terminal, stdin at its end, nothing that asks. It is
over when the command itself ends, though a background child may hold its output pipe. A `keeper` stands
above it: what it started is found below the keeper and is killed on request, and by the keeper when we are
gone. Where a system's processes cannot adopt orphans, and when the keeper was killed, the session and a mark
in the environment find them.

Knows no tool, no permission and no model. POSIX only.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from letta_code.core.text import one_line, well_formed
from letta_code.errors import StorageError, ToolError
from letta_code.storage import private_folder
from letta_code.tools.base import Workspace
from letta_code.tools.output import Spool
from letta_code.tools.pacing import Paced
from letta_code.tools.processes.keeping import Keeper, Kept
from letta_code.tools.processes.sandbox import is_first_inside

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""

MARK = "LETTA_CODE_JOB"
"""The environment variable by which processes of ours are found again after a double fork. Nested
commands of a nested `letta` carry the outer mark too, separated by a colon."""

_ARGUMENT_LIMIT = 100_000  # bytes; Linux allows 131,072 for one argument
_PIPE_CAPACITY = 1 << 20  # a pipe never holds more, so reading that much empties what was there
_LOOK = 0.02  # seconds between two looks whether processes have ended

# Variables that would send a command elsewhere than its words say: Git's choice of repository (set when
# letta was started from a Git hook), and where a relative `cd` may land.
_DROPPED = frozenset(
    {
        "CDPATH",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_EXEC_PATH",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
        "GIT_REFLOG_ACTION",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
    "TERM": "dumb",
}
_QUIET_UNLESS_SET = {"GIT_ASKPASS": "", "DEBIAN_FRONTEND": "noninteractive", "PIP_NO_INPUT": "1"}


def child_environment(workspace: Workspace, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What commands get: our own environment, `workspace.environment`, and answers for programs that
    would ask.

    Git variables that choose a repository are dropped: when `letta` was started from a Git hook they
    would turn a `git` in another folder against the hook's repository and index. Git's other variables
    (identity, configuration, SSH command) are the person's and stay.
    """
    environment = {name: value for name, value in inherited.items() if name not in _DROPPED}
    environment |= {name: value for name, value in _QUIET_UNLESS_SET.items() if name not in inherited}
    environment |= _QUIET
    environment |= workspace.environment
    return environment


@dataclass(frozen=True, slots=True)
class Survivor:
    """A process that a finished command left behind."""

    pid: int
    command: str


_jobs: weakref.WeakSet[Job] = weakref.WeakSet()
"""Every job of this process that may have living processes, for `end_all`."""


def end_all() -> None:
    """SIGKILL for every process that this one started in its session or by a `Job`. For last resorts: from
    any thread, without an event loop. A process that was started to outlive us is in a session of its own."""
    for job in list(_jobs):
        job.kill_now()
    try:
        children = psutil.Process().children()
    except psutil.Error:
        return
    _send([child for child in children if _in_our_session(child)], signal.SIGKILL)


class Job:
    """One started command, from its start until everything it left behind is gone.

    Made by `start`, inside a running event loop. `unread` holds what was printed since it was last
    exchanged.
    """

    def __init__(
        self, command: str, workspace: Workspace, keeper: Keeper, progress: Callable[[str], None]
    ) -> None:
        self.command = command
        self.started = time.monotonic()
        self.unread = Spool(workspace, "Bash")
        self._workspace = workspace
        self._loop = asyncio.get_running_loop()
        self._progress = Paced(progress, self._loop)
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._token = uuid.uuid4().hex
        self._script: Path | None = None
        self._born = time.time()
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        try:
            self._kept = self._spawn(keeper, write)
        except BaseException:
            os.close(self._read)
            self._forget_script()
            raise
        finally:
            os.close(write)
        self._above: psutil.Process | None
        try:
            self._above = psutil.Process(self._kept.keeper)
        except psutil.Error:
            self._above = None  # all of it has ended
        self._reading = self._listening = True
        self._loop.add_reader(self._read, self._on_readable)
        self._loop.add_reader(self._kept.line, self._on_news)
        self._on_news()
        _jobs.add(self)

    @classmethod
    def start(
        cls, command: str, workspace: Workspace, keeper: Keeper, progress: Callable[[str], None]
    ) -> Job:
        """Start `command` with bash in `workspace.project`.

        `progress` gets its output as readable text, at most ten times a second, cut when it floods.

        Raises:
            ToolError: the working directory is gone, there is no shell, or the system refuses.
        """
        if not workspace.project.is_dir():
            raise ToolError(
                f"the working directory {workspace.project} does not exist any more; no command can run in it"
            )
        try:
            return cls(command, workspace, keeper, progress)
        except ValueError as error:  # a NUL character
            raise ToolError(f"the command cannot be run: {error}") from error
        except (OSError, StorageError) as error:
            raise ToolError(f"the command could not be started: {error}") from error

    def _spawn(self, keeper: Keeper, output: int) -> Kept:
        shell = (shutil.which("bash") or "/bin/sh").encode()
        environment = child_environment(self._workspace)
        outer = os.environ.get(MARK)
        environment[MARK] = f"{outer}:{self._token}" if outer else self._token
        encoded = well_formed(self.command).encode("utf-8")  # whatever the locale says
        words = [shell, b"-c", encoded]
        if len(encoded) > _ARGUMENT_LIMIT:
            folder = private_folder(self._workspace.overflow)
            handle, path = tempfile.mkstemp(prefix="command-", suffix=".sh", dir=folder)
            self._script = Path(path)
            with os.fdopen(handle, "wb") as file:
                file.write(encoded)
            words = [shell, os.fsencode(path)]
        if self._workspace.sandbox is not None:
            words = self._workspace.sandbox.wrap(words, self._workspace)
        return keeper.start(words, self._workspace.project, environment, output)

    def _on_news(self) -> None:
        """Hear what the keeper says. Every look at `_kept` may take in its last words, so the end is looked
        for first: the status came before it."""
        over = self._kept.gone or self._kept.lost
        if self._kept.status is not None and not self._exited.done():
            self._forget_script()
            self._exited.set_result(None)
        if over:
            self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._kept.line)
            self._kept.close()

    def _forget_script(self) -> None:
        if self._script is not None:
            self._script.unlink(missing_ok=True)

    # Output ---------------------------------------------------------------------------------------

    def _on_readable(self) -> int:
        """Take one piece of output; its size, 0 when there is nothing now or never again."""
        try:
            data = os.read(self._read, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return 0
        if data:
            self._progress.add(self.unread.feed(data))
        else:
            self._stop_reading()
        return len(data)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._read)
            os.close(self._read)
            self._progress.add(self.unread.feed(b"", last=True))
            self._progress.flush()

    def _drain(self) -> None:
        """Take what is in the pipe now, which includes all that an exited command wrote."""
        taken = 0
        while self._reading and taken <= _PIPE_CAPACITY and (size := self._on_readable()):
            taken += size
        self._progress.flush()

    def take_unread(self) -> Spool:
        """What was printed since the last time; bounded, as every `Spool`."""
        if self._reading:
            self._drain()
        taken, self.unread = self.unread, Spool(self._workspace, "Bash")
        taken.close()
        return taken

    # The end --------------------------------------------------------------------------------------

    @property
    def exit_code(self) -> int | None:
        """The command's exit code, 128 + signal when a signal ended it, None while it runs."""
        self._on_news()
        code = self._kept.status
        return code if code is None or code >= 0 else 128 - code

    async def wait(self, seconds: float | None) -> bool:
        """Wait at most so long for the command itself; whether it has ended. What it printed has been
        taken then."""
        await asyncio.wait({self._exited}, timeout=seconds)
        if not self._exited.done():
            return False
        self._drain()
        return True

    def survivors(self) -> tuple[Survivor, ...]:
        """Living processes of this job, beside nothing when it is over."""
        members = self._members()
        self._on_news()
        if self._workspace.sandbox is not None:
            members = [process for process in members if not is_first_inside(process.pid)]
        described = ((process.pid, _describe(process)) for process in members)
        return tuple(Survivor(pid, command) for pid, command in described if command is not None)

    def release(self) -> None:
        """Stop reading: nothing of the job is left that could print. If something is, the keeper ends it."""
        self._drain()
        self._stop_reading()
        self._stop_listening()
        _jobs.discard(self)

    async def kill(self, grace: float = GRACE) -> None:
        """End every process of the job: SIGTERM, after `grace` seconds SIGKILL. When it is cancelled
        meanwhile, SIGKILL follows at once."""
        try:
            _send(self._members(), signal.SIGTERM)
            for _ in range(int(grace / _LOOK)):
                if not self._members():
                    break
                await asyncio.sleep(_LOOK)
        finally:
            self.kill_now()
        self._on_news()
        await asyncio.wait({self._exited}, timeout=1)
        self.release()

    def kill_now(self) -> None:
        """End every process of the job with SIGKILL, without an event loop."""
        for _ in range(100):
            members = self._members()
            if not members:
                return
            _send(members, signal.SIGKILL)
            time.sleep(0.005)

    def _members(self) -> list[psutil.Process]:
        """Every living process of this job."""
        if self._kept.gone:
            return []
        members: dict[int, psutil.Process] = {}
        if self._above is not None:
            try:
                members = {process.pid: process for process in self._above.children(recursive=True)}
            except psutil.Error:
                pass  # it has ended
        if self._kept.lost or not self._kept.adopts:
            members |= self._found_by_mark()
        return [process for process in members.values() if _is_alive(process)]

    def _found_by_mark(self) -> dict[int, psutil.Process]:
        """What carries our mark, and what is below that."""
        found: dict[int, psutil.Process] = {}
        others: list[tuple[int, psutil.Process]] = []
        for process in psutil.process_iter():
            try:
                if process.create_time() < self._born - 60:
                    continue
                if self._is_marked(process) and process.pid != self._kept.keeper:
                    found[process.pid] = process
                else:
                    others.append((process.ppid(), process))
            except (psutil.Error, OSError):
                continue  # it ended meanwhile
        grown = True
        while grown:
            children = [process for parent, process in others if parent in found]
            grown = any(process.pid not in found for process in children)
            found.update((process.pid, process) for process in children)
        return found

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return self._token in process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            return False  # another user's process


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _in_our_session(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == os.getsid(0)
    except OSError:
        return False


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue  # it is gone, or another user's (sudo)


def _describe(process: psutil.Process) -> str | None:
    try:
        return one_line(" ".join(process.cmdline()) or process.name())
    except psutil.NoSuchProcess:
        return None
    except psutil.Error:
        return "?"
