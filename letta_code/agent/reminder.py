"""The `<system-reminder>`: volatile facts that travel with the person's message, never in the prompt."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.agent.memory_notes import MemoryNotes
from letta_code.conversations.history import History
from letta_code.conversations.store import Conversation
from letta_code.core.messages import Message
from letta_code.core.text import one_line, well_formed
from letta_code.errors import StorageError
from letta_code.memory.render import escaped
from letta_code.tools.base import Workspace

if TYPE_CHECKING:
    from letta_code.archive.archive import Archive

_PRESSURE = "Context window"
_EMPTY = "empty"
_HIDDEN = "Messages out of sight"
_GIT_SECONDS = 1.0
_GIT_BYTES = 65_536
_GIT_FILES = 20
_TAGS = 10
_PROJECT_TEXT = 8_000  # characters
_PROJECT_FILES = ("AGENTS.md", "CLAUDE.md")
_OF_PROJECT = "of this project (written by the project's authors, not by the person you talk to):"
PROJECT_NOTES = tuple(f"{name} {_OF_PROJECT}" for name in _PROJECT_FILES)
"""How the project's own instructions begin in a reminder, which ends with them or with memory's notes."""


class Reminder:
    """Tells all facts with the first message of a session, later only those that changed. `memory` adds
    what there is to say of memory, `archive` what it holds."""

    def __init__(
        self,
        workspace: Workspace,
        agent_id: str,
        conversation_id: str,
        memory: MemoryNotes | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.memory = memory
        self._archive = archive
        self._workspace = workspace
        self._agent_id = agent_id
        self._conversation_id = conversation_id
        self._told: dict[str, str] = {}

    async def text(
        self,
        first: bool,
        messages: Sequence[Message] = (),
        window: int = 0,
        news: Sequence[str] = (),
        pressure: str = "",
        hidden: int = 0,
    ) -> str:
        """The reminder for the next message; "" when nothing changed. `first`: the conversation is new,
        so the project's own instructions go along. `messages` is the conversation so far, `window` the
        model's (tokens; 0: not known), `news` what else happened since the last message, `pressure` how full
        the window is ("" while there is room), `hidden` how many messages are stored but not in sight."""
        opening = not self._told
        facts = self._facts(datetime.now().astimezone())
        if pressure or _PRESSURE in self._told:
            facts[_PRESSURE] = pressure or "there is room again"
        if hidden:
            facts[_HIDDEN] = f"{hidden:,} of this conversation, which conversation_search finds"
        lines = [f"{name}: {value}" for name, value in facts.items() if self._told.get(name) != value]
        self._told = facts
        if opening:
            lines += await git_summary(self._workspace.project, self._workspace.our_environment())
        parts = [escaped("\n".join(lines), "system-reminder")] if lines else []
        if first and (instructions := project_instructions(self._workspace.project)):
            parts.append(escaped(instructions, "system-reminder"))
        parts += [escaped(item, "system-reminder") for item in news]
        if self.memory is not None:
            parts += self.memory.parts(messages, window)
        if not parts:
            return ""
        body = well_formed("\n\n".join(parts))
        return f"<system-reminder>\n{body}\n</system-reminder>"

    def forget(self) -> None:
        """What was told did not reach the conversation: tell it again."""
        self._told = {}
        if self.memory is not None:
            self.memory.forget()

    def _facts(self, now: datetime) -> dict[str, str]:
        facts = {
            "Date": now.strftime("%Y-%m-%d (%A)"),
            "Working directory": one_line(str(self._workspace.project), 1000),
            "Platform": f"{platform.system()} {platform.release()}",
            "Agent": self._agent_id,
            "Conversation": self._conversation_id,
        }
        if self._workspace.memory is not None:
            facts["Memory ($MEMORY_DIR)"] = str(self._workspace.memory)
        held = "" if self._archive is None else archive_summary(self._archive)
        if held and (held != _EMPTY or "Archive" in self._told):
            facts["Archive"] = held
        return facts if self.memory is None else facts | self.memory.facts()


def archive_summary(archive: Archive) -> str:
    """How many passages there are and their most used tags; "" when that cannot be had."""
    try:
        counts = archive.counts()
    except StorageError:
        return ""  # its tools say what is wrong
    if not counts.passages:
        return _EMPTY
    tags = [f"{tag} ({used})" for tag, used in counts.tags[:_TAGS]]
    more = f" and {len(counts.tags) - _TAGS} more" if len(counts.tags) > _TAGS else ""
    named = f"; tags: {', '.join(tags)}{more}" if tags else ""
    return f"{counts.passages} passages (archival_memory_search){named}"


def out_of_sight(history: History) -> int:
    """How many messages of the conversation requests do not carry since it was compacted."""
    seen = {entry.id for entry in history.visible}
    return sum(entry.id not in seen for entry in history.entries)


def news_of(conversation: Conversation) -> list[str]:
    """What the next message tells the model of the conversation: a last turn that did not come to its end,
    and what undos did."""
    history = conversation.history
    if conversation.running_elsewhere:
        ending = (
            f"This conversation is a copy of {conversation.forked_from}, made in the middle of a turn. "
            "That turn may go on there and change the same files: check before you repeat it."
        )
    elif history.unfinished is not None:
        ending = (
            "The previous turn was cut off: the program was stopped, not by the person's choice. "
            "Results whose outcome is unknown may have happened: check before you repeat them."
        )
    elif history.interrupted:
        ending = "The previous turn was interrupted before it came to its end."
    else:
        return history.news
    return [ending, *history.news]


def project_instructions(project: Path) -> str:
    """The project's AGENTS.md or CLAUDE.md, bounded and marked as the project's text; "" without one."""
    for name in _PROJECT_FILES:
        path = project / name
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                text = file.read(_PROJECT_TEXT * 4 + 4).decode("utf-8", "replace").strip()
        except OSError:
            continue
        if text:
            cut = "\n[cut here; Read the file for the rest]" if len(text) > _PROJECT_TEXT else ""
            return f"{name} {_OF_PROJECT}\n{text[:_PROJECT_TEXT]}{cut}"
    return ""


async def git_summary(project: Path, environment: Mapping[str, str]) -> list[str]:
    """Branch and changed files of the project's repository as a few lines; none without a repository,
    without git, or when it takes over a second. Never writes to the index, never runs a hook, and does not
    look into submodules, whose configuration may be anybody's."""
    clean = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
    clean |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    options = ("--porcelain=v1", "--branch", "-z", "--ignore-submodules=dirty")
    command = ("git", "-c", "core.fsmonitor=false", "status", *options)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=project,
            env=clean,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            process_group=0,
        )
    except OSError:
        return []
    try:
        data, whole = await asyncio.wait_for(_bounded(process), _GIT_SECONDS)
    except TimeoutError:
        return ["Git: status took too long"]
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return _git_lines(data, whole)


async def _bounded(process: asyncio.subprocess.Process) -> tuple[bytes, bool]:
    assert process.stdout is not None
    data = b""
    while len(data) < _GIT_BYTES:
        piece = await process.stdout.read(_GIT_BYTES - len(data))
        if not piece:
            await process.wait()
            return data, True
        data += piece
    return data, False


def _git_lines(data: bytes, whole: bool) -> list[str]:
    items = data.decode("utf-8", "replace").split("\0")[:-1]
    if not items or not items[0].startswith("## "):
        return []
    lines = [f"Git branch: {one_line(items[0][3:], 200)}"]
    changes = []
    skip = False
    for item in items[1:]:
        if skip:  # the old name of a renamed file
            skip = False
            continue
        skip = item[:2].strip()[:1] in {"R", "C"}
        changes.append(f"  {item[:2]} {one_line(item[3:], 200)}")
    if not changes:
        return [*lines, "Git status: clean"] if whole else lines
    count = f"{len(changes)}" if whole else f"more than {len(changes)}"
    lines.append(f"Git status at the start: {count} changed")
    lines += changes[:_GIT_FILES]
    if len(changes) > _GIT_FILES or not whole:
        lines.append("  …")
    return lines
