"""Agents on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from letta_code.agent.state import AgentStore, ProjectStore
from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.errors import AgentError, MemoryStoreError, UsageError
from letta_code.memory.seed import default_files
from letta_code.paths import Paths


def paths(root: Path) -> Paths:
    return Paths(root / "memfs", root / "config", root / "data", root / "cache", root / "log")


def test_a_state_rebuilds_the_agent(tmp_path: Path) -> None:
    store = AgentStore(paths(tmp_path))
    state = store.create("ada", "Be good. {CORE_MEMORY}", default_files(), model="a/b", tags=("x",))
    again = AgentStore(paths(tmp_path))
    assert again.load(state.key) == state
    assert again.base_prompt(state) == "Be good. {CORE_MEMORY}"
    assert again.memory(state).snapshot().read("system/persona.md")
    changed = again.with_base_prompt(state, "Be better.")
    assert again.base_prompt(changed) == "Be better."
    assert again.base_prompt_by_hash(state.key, state.base_prompt) == "Be good. {CORE_MEMORY}"


def test_keys_of_a_newer_version_survive(tmp_path: Path) -> None:
    store = AgentStore(paths(tmp_path))
    state = store.create("ada", "p", default_files())
    file = paths(tmp_path).agent_state(state.key)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"later": [1]}))
    store.save(store.load(state.key))
    assert json.loads(file.read_text())["later"] == [1]


def test_an_agent_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    store = AgentStore(paths(tmp_path))
    with pytest.raises(MemoryStoreError):
        store.create("ada", "p", {"system/a.md": "---\nbroken: [\n---\n"})
    assert store.list_with_problems() == ((), ())
    assert not [path for path in tmp_path.rglob("agent-*")]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"v": 9}', '{"v": 1, "id": 3}', "\0" * 40])
def test_a_damaged_state_is_named_and_hides_no_other(tmp_path: Path, content: str) -> None:
    store = AgentStore(paths(tmp_path))
    good, bad = store.create("good", "p", default_files()), store.create("bad", "p", default_files())
    file = paths(tmp_path).agent_state(bad.key)
    file.write_text(content)
    agents, problems = store.list_with_problems()
    assert agents == (good,)
    assert len(problems) == 1
    assert str(file) in problems[0]
    with pytest.raises(AgentError, match="is damaged"):
        store.find(bad.id)


def test_agents_are_found_by_id_name_and_prefix(tmp_path: Path) -> None:
    store = AgentStore(paths(tmp_path))
    ada, bob = store.create("Ada", "p", default_files()), store.create("bob", "p", default_files())
    assert store.find(ada.id) == store.find("Ada") == store.find("ada") == store.find(ada.id[:20]) == ada
    with pytest.raises(AgentError, match="there is no agent") as caught:
        store.find("bobb")
    assert "bob" in caught.value.hint
    with pytest.raises(UsageError):
        store.create("bob", "p", default_files())
    assert store.delete(bob.key).is_dir()
    assert store.list() == (ada,)
    assert not store.delete(ada.key, purge=True).exists()


def test_a_missing_memory_and_a_changed_prompt_are_said(tmp_path: Path) -> None:
    store = AgentStore(paths(tmp_path))
    state = store.create("ada", "p", default_files())
    paths(tmp_path).memory_home(state.key).rename(tmp_path / "moved")
    with pytest.raises(AgentError, match="memory of ada is missing"):
        store.memory(state)
    paths(tmp_path).base_prompt(state.key, state.base_prompt).write_text("other")
    with pytest.raises(AgentError, match="was changed"):
        store.base_prompt(state)


def test_projects_by_their_real_path(tmp_path: Path) -> None:
    key = AgentKey(DEFAULT_ORG, "agent-1")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    ProjectStore(paths(tmp_path)).record(tmp_path / "link", key, "conv-1")
    use = ProjectStore(paths(tmp_path)).last(tmp_path / "real")
    assert use is not None
    assert (use.agent, use.conversation) == (key, "conv-1")
    paths(tmp_path).projects().write_text("[")
    assert ProjectStore(paths(tmp_path)).last(tmp_path / "real") is None
