"""The one place that spells where things are on disk. Makes no folder and opens no file.

Memory lives where Letta keeps it; settings, data and cache where the platform keeps such things.
`LETTA_HOME=DIR` puts all of it under one folder (`DIR/memfs`, `DIR/config`, `DIR/data`, `DIR/cache`,
`DIR/log`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from letta_code.core.ids import AgentKey, checked_id

_APP = "letta-code"


@dataclass(frozen=True, slots=True)
class Paths:
    """The roots, and every path below them."""

    memfs: Path
    config: Path
    data: Path
    cache: Path
    log: Path
    temporary: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Paths:
        """The roots for this user, or under `LETTA_HOME` when that is set and not empty.

        Without a usable home directory (a container's user without one, say) everything goes to a private
        folder below the temporary directory, and `temporary` says so.
        """
        if root := environment.get("LETTA_HOME"):
            return cls._below(Path(root).expanduser().absolute())
        home = Path(os.path.expanduser("~"))
        if not home.is_absolute() or not home.is_dir():
            base = Path(tempfile.gettempdir()) / f"letta-home-{os.getuid()}"
            return replace(cls._below(base), temporary=True)
        return cls(
            memfs=home / ".letta" / "memfs",
            config=platformdirs.user_config_path(_APP, appauthor=False),
            data=platformdirs.user_data_path(_APP, appauthor=False),
            cache=platformdirs.user_cache_path(_APP, appauthor=False),
            log=platformdirs.user_log_path(_APP, appauthor=False),
        )

    @classmethod
    def _below(cls, base: Path) -> Paths:
        return cls(base / "memfs", base / "config", base / "data", base / "cache", base / "log")

    # Memory ---------------------------------------------------------------------------------------

    def memory_home(self, key: AgentKey) -> Path:
        """The folder that holds `repo.git` and `memory` of an agent; it can be moved as a whole."""
        return self.memfs / key.org / key.agent

    def memory_repository(self, key: AgentKey) -> Path:
        """The agent's memory: an ordinary Git directory."""
        return self.memory_home(key) / "repo.git"

    def memory_worktree(self, key: AgentKey) -> Path:
        """Its work tree, `$MEMORY_DIR`."""
        return self.memory_home(key) / "memory"

    def memory_sync_record(self, key: AgentKey) -> Path:
        """How the last sync of an agent's memory ended."""
        return self.memory_home(key) / "sync.json"

    def memory_sync_lock(self, key: AgentKey) -> Path:
        """Held while an agent's memory is synced."""
        return self.memory_home(key) / "sync.lock"

    def memory_sync_queue(self, key: AgentKey) -> Path:
        """Held by the one sync that waits for another to end."""
        return self.memory_home(key) / "sync-next.lock"

    # Agents and conversations ---------------------------------------------------------------------

    def agents(self) -> Path:
        """Folder of all agents: `<org>/<agent>/agent.json`."""
        return self.data / "agents"

    def agent_state(self, key: AgentKey) -> Path:
        """What rebuilds the agent."""
        return self.agents() / key.org / key.agent / "agent.json"

    def base_prompt(self, key: AgentKey, sha256: str) -> Path:
        """A base prompt this agent once used, by its hash (hex)."""
        return self.agents() / key.org / key.agent / "prompts" / f"{sha256}.md"

    def conversations(self, key: AgentKey) -> Path:
        """Folder of an agent's transcripts."""
        return self.data / "conversations" / key.org / key.agent

    def conversation(self, key: AgentKey, conversation_id: str) -> Path:
        """One append-only transcript."""
        return self.conversations(key) / f"{checked_id(conversation_id, 'conv')}.jsonl"

    def undo(self, key: AgentKey, conversation_id: str) -> Path:
        """What files held before a conversation's tools changed them."""
        return self.data / "undo" / key.org / key.agent / checked_id(conversation_id, "conv")

    def all_conversations(self) -> Path:
        """Folder of all agents' transcripts: `<org>/<agent>/<conversation>.jsonl`."""
        return self.data / "conversations"

    def projects(self) -> Path:
        """Which agent and conversation each project used last."""
        return self.data / "projects.json"

    def known_projects(self) -> Path:
        """Under which names memory keeps the facts of the projects that were seen."""
        return self.data / "known-projects.json"

    def trust(self) -> Path:
        """Which folders' settings the person trusts."""
        return self.data / "trust.json"

    def recall_index(self) -> Path:
        """What makes conversations searchable: derived from the transcripts, safe to delete."""
        return self.data / "index.db"

    def archive(self) -> Path:
        """The passages that agents put into their archives."""
        return self.data / "archive.db"

    def typed_lines(self) -> Path:
        """What the person typed in chats, for the line editor's history."""
        return self.data / "history"

    # Settings, cache, log -------------------------------------------------------------------------

    def settings(self) -> Path:
        """The person's settings."""
        return self.config / "settings.json"

    def user_skills(self) -> Path:
        """Skills of this person, for every project."""
        return self.config / "skills"

    def compiled_prompts(self) -> Path:
        """Cache of compiled prompts: safe to delete."""
        return self.cache / "prompts"

    def memory_page(self, key: AgentKey) -> Path:
        """The page of an agent's memory that a browser was last shown."""
        return self.cache / "memory-pages" / key.org / f"{key.agent}.html"

    def overflow(self, conversation_id: str) -> Path:
        """Full texts of tool outputs that were cut, for the model to read."""
        return self.cache / "overflow" / checked_id(conversation_id, "conv")

    def project_copies(self, project: Path) -> Path:
        """Copies of a project's files from before the last shell command."""
        from hashlib import sha256

        digest = sha256(os.fsencode(project)).hexdigest()
        return self.cache / "project-copies" / digest[:32]

    def log_file(self) -> Path:
        """Tracebacks of bugs and other diagnostics."""
        return self.log / "letta.log"


def project_settings(project: Path) -> tuple[Path, Path]:
    """The shared and the private settings file of a project, in the order they are applied."""
    return project / ".letta" / "settings.json", project / ".letta" / "settings.local.json"
