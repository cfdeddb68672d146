"""How the tools tell undo what they are about to change: files before they are written, and the project
before and after a shell command.

What is kept and how it comes back is `letta_code.undo`; here is only what needs ripgrep: which files a
project has that Git does not ignore.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

from letta_code.errors import StorageError, ToolError
from letta_code.tools.base import Call
from letta_code.tools.ripgrep import Ripgrep
from letta_code.undo.recorder import Recorder, Running

MOST_FILES = 20_000
"""Files of the largest project that is looked at around commands."""

_SECONDS = 3.0  # for the list of files
_log = logging.getLogger(__name__)


class _NoList(Exception):
    """The project's files cannot be listed; the text says why."""


class Undoing:
    """What one conversation's tools tell undo. `environment` is ripgrep's; a project of more than `most`
    files is not looked at around commands."""

    def __init__(
        self, recorder: Recorder, project: Path, environment: Mapping[str, str], most: int = MOST_FILES
    ) -> None:
        self._most = most
        self._recorder = recorder
        self._project = project
        self._environment = environment

    def before_write(self, call: Call, tool: str, path: Path, before: bytes | None, after: bytes) -> None:
        """`tool` is about to replace `before`, the content of `path` (resolved), by `after`.

        Raises:
            StorageError: what is there cannot be kept; it must not be written.
        """
        self._recorder.before_write(call.turn, tool, path, before, after)

    async def before_command(self, call: Call, command: str) -> Running | None:
        """`command` is about to run. Give what this returns to `after_command`.

        Never refuses: a command may be what makes room on a full disk.
        """
        try:
            try:
                listing = await self._listing()
            except _NoList as error:
                self._recorder.uncovered(call.turn, command, str(error))
                return None
            return await asyncio.to_thread(self._recorder.before_command, call.turn, command, listing)
        except StorageError as error:
            _log.warning("undo will not know of a command: %s", error.message)
            return None

    async def after_command(self, running: Running | None) -> None:
        """The command has ended. Without this call, all that differs counts as doubtful."""
        if running is None:
            return
        try:
            listing = await self._listing()
            await asyncio.to_thread(self._recorder.after_command, running, listing)
        except (_NoList, StorageError) as error:
            _log.warning("what a command changed was not recorded: %s", error)

    async def _listing(self) -> list[str]:
        """The project's files, relative, without repositories' own and those that Git ignores."""
        run = Ripgrep(
            [
                *("--files", "--null", "--hidden"),
                *("--no-require-git", "--no-ignore-dot", "--no-ignore-messages"),
                *(f"--glob=!{name}" for name in (".git", ".hg", ".svn", ".jj")),
                *("--", "./"),
            ],
            self._project,
            self._environment,
            _SECONDS,
        )
        found: list[str] = []
        try:
            async with aclosing(run.records(b"\0")) as records:
                async for record in records:
                    found.append(os.fsdecode(record.removeprefix(b"./")))
                    if len(found) > self._most:
                        raise _NoList(f"the project has more than {self._most:,} files")
        except ToolError as error:
            raise _NoList(f"the project's files could not be listed: {error}") from error
        if run.cut:
            raise _NoList(f"the list of the project's files was {run.cut}")
        return found
