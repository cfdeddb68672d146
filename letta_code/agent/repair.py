"""An agent whose own files are damaged or gone, rebuilt from its memory, which is in Git.

What only the damaged file knew (its model, tags, tools, compaction) starts from the defaults.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.agent.state import AgentState, AgentStore
from letta_code.core.ids import AgentKey
from letta_code.errors import AgentError, StorageError, UsageError
from letta_code.paths import Paths
from letta_code.storage import locked

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository

_DAMAGED = ".damaged"


def repair(paths: Paths, wanted: str, packaged_prompt: str) -> tuple[AgentState, tuple[str, ...]]:
    """Make the agent whose id begins with `wanted` loadable again; the agent, and one line for each thing
    that was done. A damaged file is kept beside the new one, as `NAME.damaged`.

    `packaged_prompt` is the base prompt for an agent whose own is lost.

    Raises:
        AgentError: there is no such agent, more than one, or its memory is gone too.
        MemoryStoreError, StorageError: its memory cannot be read, or the files not written.
    """
    from letta_code.memory.git.repository import MemoryRepository

    store, key = AgentStore(paths), _found(paths, wanted)
    if not paths.memory_repository(key).exists():
        raise AgentError(
            f"the memory of {key.agent} is gone too: {paths.memory_repository(key)}",
            "restore that folder from a backup or a clone, then repair the agent",
        )
    repository = MemoryRepository.open(paths.memory_repository(key))
    done: list[str] = []
    with locked(paths.agents().with_suffix(".lock"), 30, "another process is making an agent", "try again"):
        try:
            state = store.load(key)
        except AgentError:
            state = _rebuilt(store, paths, key, repository, packaged_prompt)
            _set_aside(paths.agent_state(key))
            store.save(state)
            done.append(f"{paths.agent_state(key)} was made anew from its memory")
        try:
            store.base_prompt(state)
        except AgentError:
            _set_aside(paths.base_prompt(key, state.base_prompt))
            state = store.with_base_prompt(state, packaged_prompt)
            done.append(f"its base prompt is the usual one: {paths.base_prompt(key, state.base_prompt)}")
    return state, tuple(done)


def _found(paths: Paths, wanted: str) -> AgentKey:
    folders = {
        (path.parent.name, path.name)
        for root in (paths.agents(), paths.memfs)
        for path in root.glob("org-*/agent-*")
        if path.name.startswith(wanted) and wanted.startswith("agent-")
    }
    try:
        keys = [AgentKey(*names) for names in sorted(folders)]
    except UsageError as error:
        raise AgentError(error.message, error.hint) from error
    if len(keys) != 1:
        ids = ", ".join(key.agent for key in keys[:5])
        hint = f"one of {ids}" if keys else f"the ids of agents are the folders in {paths.memfs}"
        raise AgentError(f"{wanted!r} fits {len(keys)} agents", hint)
    return keys[0]


def _rebuilt(
    store: AgentStore, paths: Paths, key: AgentKey, repository: MemoryRepository, packaged_prompt: str
) -> AgentState:
    from letta_code.memory.git.log import log

    own = log(repository, 1_000_000, author=f"{key.agent}@")
    first = own[-1] if own else log(repository, 1_000_000)[-1]
    taken = {other.name for other in store.list() if other.key != key}
    name = first.author_name if own else key.agent
    return AgentState(
        id=key.agent,
        org=key.org,
        name=name if name not in taken else f"{name} ({key.agent[:14]})",
        base_prompt=_prompt(store, paths, key, packaged_prompt),
        created_at=first.when,
        block_labels=tuple(
            block.label for block in repository.snapshot().blocks if block.label.startswith("system/")
        ),
    )


def _prompt(store: AgentStore, paths: Paths, key: AgentKey, packaged_prompt: str) -> str:
    """The hash of the base prompt: the only whole one that is kept, else the packaged one."""
    whole = []
    for path in paths.base_prompt(key, "").parent.glob("*.md"):
        try:
            store.base_prompt_by_hash(key, path.stem)
        except AgentError:
            continue
        whole.append(path.stem)
    return whole[0] if len(whole) == 1 else store.save_base_prompt(key, packaged_prompt)


def _set_aside(path: Path) -> None:
    try:
        if path.exists():
            os.replace(path, path.with_name(path.name + _DAMAGED))
    except OSError as error:
        raise StorageError(f"cannot move {path} aside: {error.strerror}", "move it away by hand") from error
