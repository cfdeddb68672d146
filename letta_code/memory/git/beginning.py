"""Whether a memory has learned anything yet: what is fresh can give way to another history."""

from __future__ import annotations

from letta_code.memory.git.log import log
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.seed import START, default_files


def only_begun(repository: MemoryRepository) -> bool:
    """Whether nothing was ever learned here: the one commit made with the agent, and no drafts."""
    commits = log(repository, 2)
    return len(commits) == 1 and commits[0].reason == START and not repository.status()


def is_fresh(repository: MemoryRepository) -> bool:
    """Whether nothing at all would be lost with this memory: only begun, with the files of any new agent."""
    seed = {path: text.encode("utf-8") for path, text in default_files().items()}
    snapshot = repository.snapshot()
    return (
        only_begun(repository)
        and snapshot.entries.keys() == seed.keys()
        and all(snapshot.read(path) == text for path, text in seed.items())
    )
