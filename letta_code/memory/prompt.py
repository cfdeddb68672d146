"""The compiled system prompt: a function of (base prompt, memory revision), and its cache on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from letta_code.errors import StorageError
from letta_code.memory.render import VERSION, problems_of, render_memory
from letta_code.memory.snapshot import MemorySnapshot, Problem
from letta_code.storage import write_atomically

PLACEHOLDER = "{CORE_MEMORY}"
_KEPT = 200
"""Compiled prompts on disk; beyond it the older half is deleted."""


class SnapshotSource(Protocol):
    """What the cache needs of a memory repository."""

    def snapshot(self, revision: str | None = None) -> MemorySnapshot:
        """The files of one commit."""
        ...


@dataclass(frozen=True, slots=True)
class CompiledPrompt:
    """The text of a system prompt, its key (`base` is a sha256 in hex), and what it could not show."""

    text: str
    base: str
    revision: str
    problems: tuple[Problem, ...]


def base_hash(base: str) -> str:
    """The sha256 (hex) of a base prompt."""
    return hashlib.sha256(base.encode("utf-8")).hexdigest()


def compile_prompt(base: str, snapshot: MemorySnapshot) -> str:
    """The base prompt with memory in the place of `{CORE_MEMORY}`, or after a blank line when it has none.
    Text inside memory is never expanded."""
    memory = render_memory(snapshot)
    if PLACEHOLDER in base:
        return memory.join(base.split(PLACEHOLDER))
    return f"{base.rstrip()}\n\n{memory}" if memory else base


class PromptCache:
    """Compiled prompts by key. Deleting it, damaging it or taking the right to write it away costs time
    and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, base: str, repository: SnapshotSource, revision: str) -> CompiledPrompt:
        """The prompt for (base, revision). On a hit one file is read, and nothing else.

        Raises:
            MemoryStoreError: the revision cannot be read.
        """
        key = base_hash(base)
        file = self._folder / f"{key[:32]}-{revision}-{VERSION}.txt"
        if (found := _read(file, key, revision)) is not None:
            return found
        snapshot = repository.snapshot(revision)
        made = CompiledPrompt(compile_prompt(base, snapshot), key, revision, problems_of(snapshot))
        _quietly(lambda: _store(file, made))
        return made


def _read(file: Path, key: str, revision: str) -> CompiledPrompt | None:
    try:
        head, text = file.read_bytes().decode("utf-8").split("\n", 1)
        facts = json.loads(head)
        if facts["base"] != key or facts["revision"] != revision or facts["text"] != base_hash(text):
            return None
        return CompiledPrompt(text, key, revision, tuple(Problem(*item) for item in facts["problems"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _store(file: Path, made: CompiledPrompt) -> None:
    facts = {
        "base": made.base,
        "revision": made.revision,
        "text": base_hash(made.text),
        "problems": [[item.path, item.message] for item in made.problems],
    }
    # Its hash is checked when it is read, so it need not wait for the disk.
    write_atomically(file, (json.dumps(facts) + "\n" + made.text).encode("utf-8"), durable=False)
    files = list(file.parent.glob("*.txt"))
    if len(files) > _KEPT:
        for old in sorted(files, key=lambda path: path.stat().st_mtime)[: -(_KEPT // 2)]:
            old.unlink(missing_ok=True)


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except (OSError, StorageError):
        return  # a cache that cannot be written is no cache; the prompt is right all the same
