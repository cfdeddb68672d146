"""Agents on disk: the state that rebuilds one, the store that makes and finds them, and which one each
project used last.

Memory itself is in the agent's Git repository; the store only says where, and makes and opens it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from letta_code.core.ids import DEFAULT_ORG, AgentKey, checked_id, new_agent_id
from letta_code.errors import AgentError, LettaError, StorageError, UsageError
from letta_code.paths import Paths
from letta_code.storage import locked, private_folder, write_atomically

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository

VERSION = 1

_CREATING = 30.0
"""Seconds that making an agent waits for another process that makes one."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """Everything but memory and transcripts that is needed to rebuild an agent, on another machine too.

    `base_prompt` is the sha256 (hex) of the base system prompt; `created_at` is ISO 8601 in UTC.
    `secrets` are names, never values. `conversations` maps a conversation's id to the ids of the messages
    that are in context, where that is not simply all of them. `unknown` are keys that a newer version
    wrote; they are kept.
    """

    id: str
    org: str
    name: str
    base_prompt: str
    created_at: str
    description: str = ""
    agent_type: str = "letta_v1_agent"
    model: str | None = None
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    memory_mode: str = "git"
    block_labels: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tool_rules: tuple[Mapping[str, Any], ...] = ()
    tags: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    compaction: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    conversations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> AgentKey:
        """Organisation and id."""
        return AgentKey(self.org, self.id)


class AgentStore:
    """All agents of this person."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def create(
        self,
        name: str,
        base_prompt: str,
        files: Mapping[str, str],
        model: str | None = None,
        org: str = DEFAULT_ORG,
        description: str = "",
        tags: tuple[str, ...] = (),
    ) -> AgentState:
        """Make an agent whose memory starts with `files` (path → content).

        `agent.json` is written last: an agent that could not be made wholly is not there, and what was
        made of it is removed.

        Raises:
            UsageError: the name is empty, or another agent has it.
            StorageError, MemoryStoreError: the disk refuses.
        """
        wanted = " ".join(name.split())
        if not wanted:
            raise UsageError("an agent needs a name", "--name NAME")
        state = AgentState(
            id=new_agent_id(),
            org=checked_id(org, "org"),
            name=wanted,
            base_prompt=hashlib.sha256(base_prompt.encode()).hexdigest(),
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            description=description,
            model=model,
            block_labels=tuple(
                sorted(path.removesuffix(".md") for path in files if path.startswith("system/"))
            ),
            tags=tags,
        )
        # Two first starts at once: the second has to see the agent that the first one makes.
        lock = self._paths.agents().with_suffix(".lock")
        with locked(lock, _CREATING, "another process is making an agent", "try again"):
            if any(other.name == wanted and other.org == org for other in self.list()):
                raise UsageError(f"there is already an agent named {wanted!r}", "choose another name")
            try:
                self._make_memory(state, files)
                self.save_base_prompt(state.key, base_prompt)
                self.save(state)
            except BaseException:
                shutil.rmtree(self._paths.memory_home(state.key), ignore_errors=True)
                shutil.rmtree(self._paths.agent_state(state.key).parent, ignore_errors=True)
                raise
        return state

    def _make_memory(self, state: AgentState, files: Mapping[str, str]) -> None:
        from letta_code.memory.git.repository import Author, MemoryRepository
        from letta_code.memory.seed import START

        key = state.key
        private_folder(self._paths.memory_home(key))
        MemoryRepository.create(
            self._paths.memory_repository(key),
            self._paths.memory_worktree(key),
            files,
            Author(state.name, f"{state.id}@letta.local"),
            START,
        )

    def list(self) -> tuple[AgentState, ...]:
        """All readable agents, the oldest first."""
        return self.list_with_problems()[0]

    def list_with_problems(self) -> tuple[tuple[AgentState, ...], tuple[str, ...]]:
        """All readable agents, and one line for each `agent.json` that is damaged."""
        found, problems = [], []
        for path in sorted(self._paths.agents().glob("org-*/agent-*/agent.json")):
            try:
                found.append(self.load(AgentKey(path.parent.parent.name, path.parent.name)))
            except UsageError:
                problems.append(f"{path}: its folders are not valid ids")
            except AgentError as error:
                problems.append(error.message)
        return tuple(sorted(found, key=lambda state: (state.created_at, state.id))), tuple(problems)

    def load(self, key: AgentKey) -> AgentState:
        """The agent of this key.

        Raises:
            AgentError: it is missing or its file is damaged; the message names the file.
        """
        path = self._paths.agent_state(key)
        try:
            data = json.loads(path.read_bytes())
            return _decode(data, key)
        except FileNotFoundError as error:
            raise AgentError(f"there is no agent {key.agent}", "`letta agents list` shows them") from error
        except OSError as error:
            raise AgentError(f"{path} cannot be read: {error.strerror}", _repair(key)) from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise AgentError(f"{path} is damaged: {error}", _repair(key)) from error

    def save(self, state: AgentState) -> None:
        """Write the agent's state, atomically."""
        data: dict[str, Any] = {"v": VERSION, **state.unknown}
        data |= {item.name: getattr(state, item.name) for item in fields(state) if item.name != "unknown"}
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        write_atomically(self._paths.agent_state(state.key), text.encode("utf-8"))

    def find(self, wanted: str) -> AgentState:
        """The agent with this id or name, or whose id begins so.

        Raises:
            AgentError: there is none (with near names), more than one, or it is damaged.
        """
        agents, problems = self.list_with_problems()
        exact = [state for state in agents if state.id == wanted]
        named = [state for state in agents if state.name == wanted]
        folded = [state for state in agents if state.name.casefold() == wanted.casefold()]
        begun = [state for state in agents if len(wanted) > 6 and state.id.startswith(wanted)]
        for found in (exact, named, folded, begun):
            if len(found) == 1:
                return found[0]
            if found:
                names = ", ".join(state.id for state in found[:5])
                raise AgentError(f"{wanted!r} fits {len(found)} agents", f"use the id: {names}")
        damaged = [problem for problem in problems if wanted.startswith("agent-") and wanted in problem]
        if damaged:
            raise AgentError(damaged[0], f"letta agents repair {wanted}")
        near = difflib.get_close_matches(wanted, [state.name for state in agents], 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`letta agents list` shows them"
        raise AgentError(f"there is no agent {wanted!r}", hint)

    def delete(self, key: AgentKey, *, purge: bool = False) -> Path:
        """Delete the agent's state, transcripts and archive; its memory too with `purge`. Returns where its
        memory is or was.

        Raises:
            AgentError: there is no such agent.
            StorageError: a file cannot be removed.
        """
        from letta_code.archive.store import SqliteArchive

        path = self._paths.agent_state(key)
        if not path.exists():
            raise AgentError(f"there is no agent {key.agent}", "`letta agents list` shows them")
        memory = self._paths.memory_home(key)
        SqliteArchive(self._paths.archive()).delete_all(key)
        try:
            path.unlink()
            for folder in (path.parent, self._paths.conversations(key), *((memory,) if purge else ())):
                if folder.exists():
                    shutil.rmtree(folder)
        except OSError as error:
            raise StorageError(f"cannot delete {error.filename or path}: {error.strerror}") from error
        return memory

    def save_base_prompt(self, key: AgentKey, text: str) -> str:
        """Keep a base prompt under its sha256 (hex), which is returned."""
        data = text.encode("utf-8")
        digest = hashlib.sha256(data).hexdigest()
        try:
            self.base_prompt_by_hash(key, digest)
        except AgentError:  # not there, or damaged
            write_atomically(self._paths.base_prompt(key, digest), data)
        return digest

    def base_prompt(self, state: AgentState) -> str:
        """The agent's base system prompt.

        Raises:
            AgentError: the file is missing or is not the text it was.
        """
        return self.base_prompt_by_hash(state.key, state.base_prompt)

    def base_prompt_by_hash(self, key: AgentKey, digest: str) -> str:
        """A base prompt that the agent used once. Raises `AgentError` as `base_prompt` does."""
        path = self._paths.base_prompt(key, digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise AgentError(
                f"the base prompt {path} cannot be read: {error.strerror}", _repair(key)
            ) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise AgentError(f"the base prompt {path} was changed", _repair(key))
        return data.decode("utf-8")

    def with_base_prompt(self, state: AgentState, text: str) -> AgentState:
        """`state` with another base prompt, saved."""
        changed = replace(state, base_prompt=self.save_base_prompt(state.key, text))
        if changed != state:
            self.save(changed)
        return changed

    def memory(self, state: AgentState) -> MemoryRepository:
        """The agent's memory, opened.

        Raises:
            AgentError: it is not there.
            MemoryStoreError: it cannot be opened.
        """
        from letta_code.memory.git.repository import MemoryRepository

        path = self._paths.memory_repository(state.key)
        if not path.exists():
            raise AgentError(
                f"the memory of {state.name} is missing: {path}",
                "restore that folder from a backup or a clone; the agent's state is intact",
            )
        return MemoryRepository.open(path)


def _repair(key: AgentKey) -> str:
    return f"restore it from a backup, or letta agents repair {key.agent}"


def _decode(data: Any, key: AgentKey) -> AgentState:
    if not isinstance(data, dict):
        raise ValueError("it does not hold a JSON object")
    if not isinstance(data.get("v"), int) or data["v"] > VERSION:
        raise ValueError(f"version {data.get('v')!r} is not known; update Letta Code")
    names = {item.name for item in fields(AgentState)} - {"unknown"}
    values = {name: value for name, value in data.items() if name in names}
    for name in ("id", "org", "name", "base_prompt", "created_at"):
        if not isinstance(values.get(name), str):
            raise ValueError(f"{name} is missing or not a string")
    for item in fields(AgentState):
        value = values.get(item.name)
        if item.name in values and str(item.type).startswith("tuple"):
            if not isinstance(value, list):
                raise ValueError(f"{item.name} is not a list")
            values[item.name] = tuple(value)
        elif item.name in values and str(item.type).startswith("Mapping") and not isinstance(value, dict):
            raise ValueError(f"{item.name} is not an object")
    if (values["org"], values["id"]) != (key.org, key.agent):
        raise ValueError(f"it is the state of {values['id']}")
    values["conversations"] = {name: tuple(ids) for name, ids in values.get("conversations", {}).items()}
    unknown = {name: value for name, value in data.items() if name not in names and name != "v"}
    return AgentState(**values, unknown=unknown)


@dataclass(frozen=True, slots=True)
class ProjectUse:
    """What a project used last. `conversation` is None when it has none yet."""

    agent: AgentKey
    conversation: str | None


class ProjectStore:
    """Which agent and conversation each project (by real path) used last. A convenience: a damaged file is
    kept aside and counts as empty."""

    def __init__(self, paths: Paths) -> None:
        self._path = paths.projects()

    def last(self, project: Path) -> ProjectUse | None:
        """What `project` used last, or None."""
        item: Any = (self._read() or {}).get(os.path.realpath(project))
        try:
            return ProjectUse(AgentKey(item["org"], item["agent"]), item["conversation"])
        except (TypeError, KeyError, LettaError):
            return None

    def record(self, project: Path, agent: AgentKey, conversation: str | None) -> Path | None:
        """Remember what `project` uses. Where a damaged file was moved to, when there was one."""
        damaged = self._path.with_suffix(".damaged")
        with locked(self._path.with_suffix(".lock"), 5, f"{self._path} is in use by another process"):
            items = self._read()
            if moved := items is None:
                items = {}
                try:
                    os.replace(self._path, damaged)
                except OSError as error:
                    raise StorageError(f"cannot move {self._path} aside: {error.strerror}") from error
            use = {"org": agent.org, "agent": agent.agent, "conversation": conversation}
            if items.get(os.path.realpath(project)) != use:
                items[os.path.realpath(project)] = use
                text = json.dumps(items, indent=2, ensure_ascii=True) + "\n"
                write_atomically(self._path, text.encode("ascii"))
        return damaged if moved else None

    def _read(self) -> dict[str, Any] | None:
        """What is recorded; None when the file is damaged."""
        try:
            data = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) else None
