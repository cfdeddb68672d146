"""Where a command runs: our folders, the project, the environment; and which agent is meant there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.errors import AgentError, LettaError, UsageError
from letta_code.paths import Paths

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState, AgentStore, ProjectStore
    from letta_code.conversations.store import ConversationStore
    from letta_code.settings.loading import Settings

DEFAULT_AGENT = "letta"
"""The name of the agent that the first start creates."""


@dataclass(frozen=True, slots=True)
class Place:
    """Our folders, the project's folder (resolved) and the environment of this process."""

    paths: Paths
    project: Path
    environment: Mapping[str, str]

    @classmethod
    def find(cls, directory: Path | None = None) -> Place:
        """The place of this process, or of `directory` (`--cwd`).

        Raises:
            UsageError: there is no such folder.
        """
        try:
            project = (Path.cwd() / (directory or "")).resolve()
        except FileNotFoundError as error:
            raise UsageError("the current folder does not exist any more", "change to another one") from error
        if not project.is_dir():
            raise UsageError(f"no such folder: {directory}", "--cwd names the folder to work in")
        return cls(Paths.from_environment(), project, os.environ)

    def settings(self) -> Settings:
        """The settings that hold here."""
        from letta_code.settings.loading import load_settings

        return load_settings(self.paths, self.project)

    def agents(self) -> AgentStore:
        """All agents of this person."""
        from letta_code.agent.state import AgentStore

        return AgentStore(self.paths)

    def projects(self) -> ProjectStore:
        """What each project used last."""
        from letta_code.agent.state import ProjectStore

        return ProjectStore(self.paths)

    def agent(self, wanted: str | None) -> AgentState:
        """The agent named by `wanted` (id or name), else the one in whose shell this runs
        (`LETTA_AGENT_ID`), else the one this project used last, else the only or the default one.

        Raises:
            AgentError: there is none.
        """
        store = self.agents()
        wanted = wanted or self.environment.get("LETTA_AGENT_ID")
        if wanted:
            return store.find(wanted)
        last = self.last_agent()
        if last is not None:
            return last
        known = store.list()
        if not known:
            raise AgentError("there is no agent yet", "start a chat with `letta`, or `letta agents create`")
        return next((state for state in known if state.name == DEFAULT_AGENT), known[0])

    def last_agent(self) -> AgentState | None:
        """The agent that this project used last, when it still exists.

        Raises:
            AgentError: its file is damaged. Another agent must not answer in its place.
        """
        use = self.projects().last(self.project)
        if use is None or not self.paths.agent_state(use.agent).exists():
            return None
        return self.agents().load(use.agent)

    def conversations(self) -> ConversationStore:
        """All conversations of this person."""
        from letta_code.conversations.store import ConversationStore

        return ConversationStore(self.paths)


def complete_agents(incomplete: str) -> list[str]:
    """Names of agents, for the shell; nothing when they cannot be read."""
    try:
        names = [state.name for state in Place.find().agents().list()]
    except LettaError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_conversations(incomplete: str) -> list[str]:
    """Ids of conversations, the last used first, for the shell; nothing when they cannot be read."""
    try:
        found = [item.id for item in Place.find().conversations().list()]
    except LettaError:
        return []
    return [name for name in found if name.startswith(incomplete)]
