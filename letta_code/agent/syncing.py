"""Memory's sync after a turn: a process of its own, so that no turn waits for a network.

This only starts it and tells how earlier ones ended; the process is `letta memory sync --background`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from letta_code.memory.sync_record import read_record

_NOWHERE = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
]


class BackgroundSync:
    """Syncs when memory moved. `command` runs one sync, `record` says how the last one ended."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], record: Path) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._record = record
        self._revision = ""
        self._told = ""
        self._children: list[int] = []

    def moved_to(self, revision: str) -> None:
        """Start a sync unless one was started for this revision. Returns at once; the process outlives us.

        Raises:
            OSError: no process can be started.
        """
        self._children = [child for child in self._children if not _ended(child)]
        if revision == self._revision:
            return
        # Not `subprocess`: its objects want to be waited for, and this process is left to itself.
        child = os.posix_spawn(
            self._command[0], self._command, self._environment, file_actions=_NOWHERE, setsid=True
        )
        self._revision = revision
        self._children.append(child)

    def news(self) -> str:
        """What the person should know about the last sync and was not told yet; "" when all is well."""
        record = read_record(self._record)
        if record is None or record.fine:
            self._told = ""
            return ""
        words = f"memory sync: {record.message}"
        if record.hint:
            words += f" ({record.hint.splitlines()[0]})"
        if words == self._told:
            return ""
        self._told = words
        return words


def _ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
