"""How much of the model's window memory takes, and what to say when it is much. Pure; estimates only: the
provider's usage is the truth.

Counted is what the compiled prompt holds of `system/`. Nothing is cut here: a file that is too large is
named, so that it can be shortened on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from letta_code.core.tokens import estimated_tokens
from letta_code.memory.render import BODY_LIMIT
from letta_code.memory.snapshot import MemorySnapshot

NEAR = 0.9
"""The share of a block's own limit from which it is named."""

_LARGEST = 3

_estimated = lru_cache(maxsize=1024)(estimated_tokens)


@dataclass(frozen=True, slots=True)
class FileTokens:
    """One file of the prompt: about how many tokens it takes there, the characters of its whole body, and
    its own limit (characters; None: none)."""

    path: str
    tokens: int
    characters: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Budget:
    """The files of `system/` that are in the prompt, largest first, and their tokens together."""

    files: tuple[FileTokens, ...]
    total: int


def measure(snapshot: MemorySnapshot, count: Callable[[str], int] = _estimated) -> Budget:
    """What each file of `system/` costs in the prompt. Hidden and unreadable files cost nothing there; front
    matter stands for description and path, which take its place."""
    files = sorted(
        (
            FileTokens(
                block.path,
                count(block.text[: block.body_start + BODY_LIMIT]),
                len(block.body),
                block.limit,
            )
            for block in snapshot.blocks
            if not block.hidden
        ),
        key=lambda file: (-file.tokens, file.path),
    )
    return Budget(tuple(files), sum(file.tokens for file in files))


def pressure(budget: Budget, window: int, share: float) -> tuple[str, ...]:
    """What is too large, a line each; empty when all is well.

    `window` is the model's, in tokens (0: not known); `share` the part of it that `system/` may take.
    """
    lines = []
    for file in sorted(budget.files, key=lambda file: file.path):
        if file.limit is not None and file.characters > file.limit:
            lines.append(f"{file.path} is over its limit: {_of(file.characters, file.limit)} characters")
        elif file.limit is not None and file.characters >= NEAR * file.limit:
            lines.append(f"{file.path} is near its limit: {_of(file.characters, file.limit)} characters")
        if file.characters > BODY_LIMIT:
            lines.append(f"{file.path} is cut in the prompt: {_of(BODY_LIMIT, file.characters)} characters")
    if window > 0 and budget.total > share * window:
        largest = ", ".join(f"{file.path} {file.tokens:,}" for file in budget.files[:_LARGEST])
        lines.append(
            f"system/ takes about {budget.total:,} tokens, {budget.total / window:.0%} of the window of "
            f"{window:,} (budget {share:.0%}); largest: {largest}"
        )
    return tuple(lines)


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"
