"""One agent's archive: passages are kept at once, and found by words and by meaning.

An embedding model that is out of reach never keeps a passage from being stored or a search from being
answered: words alone do it then, and the result says so. Vectors that are missing are made with the next
insertion or search that reaches the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from letta_code.archive.passages import ArchiveError, Counts, Passage, Stored, Wanted
from letta_code.archive.store import ArchiveStore
from letta_code.core.ids import AgentKey
from letta_code.core.text import well_formed
from letta_code.errors import ModelError
from letta_code.memory.secrets import found
from letta_code.models.embeddings import Embedder

_AT_ONCE = 32  # passages that get their vectors with one insertion or search
_REQUEST = 8  # passages of one request
_PATIENCE = 8.0  # seconds that an insertion or a search waits for vectors, each time that it asks
_DEPTH = 50  # passages of each ranking that are joined, at least
_FUSION = 60  # the usual constant of reciprocal rank fusion


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of an insertion; `note` says why vectors are missing, "" when none are or none are made."""

    stored: tuple[Stored, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, the best first; `note` says in how far it was not by meaning too."""

    passages: tuple[Passage, ...]
    note: str = ""


class Archive:
    """The archive of the agent `key`. Without an `embedder` words alone are searched; `why` says why. One
    that takes longer than `patience` (seconds) is as good as none."""

    def __init__(
        self,
        store: ArchiveStore,
        key: AgentKey,
        embedder: Embedder | None = None,
        why: str = "no embedding model is set",
        patience: float = _PATIENCE,
    ) -> None:
        self.store = store
        self.key = key
        self.embedder = embedder
        self._why = why
        self._patience = patience

    async def insert(self, passages: Sequence[Passage], *, allow_secrets: bool = False) -> Kept:
        """Keep all of `passages` or none.

        Raises:
            ArchiveError: one holds a secret. StorageError: they cannot be kept.
        """
        if not allow_secrets:
            for passage in passages:
                refuse_secrets(passage)
        stored = await asyncio.to_thread(self.store.insert, self.key, passages)
        return Kept(tuple(stored), await self._catch_up())

    async def search(self, query: str, wanted: Wanted, top_k: int) -> Found:
        """The `top_k` passages that fit `query` best; the newest ones where it is empty."""
        query = well_formed(query)
        if not query.strip():
            newest = await asyncio.to_thread(self.store.newest, self.key, wanted, top_k)
            return Found(tuple(newest))
        depth = max(_DEPTH, 3 * top_k)
        rankings = [await asyncio.to_thread(self.store.by_words, self.key, query, wanted, depth)]
        note = self._why
        if self.embedder is not None:
            try:
                vector = await self._in_time(self.embedder.query(query))
                note = await self._catch_up(len(vector))
                near = (self.key, self.embedder.name, vector, wanted, depth)
                rankings.append(await asyncio.to_thread(self.store.by_meaning, *near))
            except ModelError as error:
                note = error.message
        by_words = f"found by words alone: {note}" if note and len(rankings) == 1 else note
        return Found(tuple(fused(rankings)[:top_k]), by_words)

    async def embed_all(self, progress: Callable[[int, int], None]) -> int:
        """Give every passage a vector of the embedder's model; returns how many got one. `progress` is told
        how many of how many are done.

        Raises:
            ModelError: the model cannot be reached, or there is none.
        """
        if self.embedder is None:
            raise ModelError(self._why, "no_model", hint="letta config set archive.embedding PROVIDER/NAME")
        length = len(await self.embedder.query("How long is a vector?"))
        waiting = await asyncio.to_thread(self.store.without_vector, self.key, self.embedder.name, length)
        for start in range(0, len(waiting), _AT_ONCE):
            await self._embed(self.embedder, waiting[start : start + _AT_ONCE])
            progress(min(start + _AT_ONCE, len(waiting)), len(waiting))
        return len(waiting)

    def counts(self) -> Counts:
        """How many passages and which tags there are."""
        return self.store.counts(self.key)

    async def _catch_up(self, length: int = 0) -> str:
        """Make vectors that are missing, some of them; what is amiss after that. `length` is that of the
        model's vectors, where it is known."""
        if self.embedder is None:
            return ""
        name, embedder = self.embedder.name, self.embedder
        waiting = await asyncio.to_thread(self.store.without_vector, self.key, name, length, _AT_ONCE + 1)
        try:
            if waiting:
                await self._in_time(self._embed(embedder, waiting[:_AT_ONCE]))
        except ModelError as error:
            return error.message
        more = len(waiting) > _AT_ONCE
        return "some passages are found by words alone until `letta archive reindex`" if more else ""

    async def _in_time(self, vectors: Awaitable[_Result]) -> _Result:
        try:
            async with asyncio.timeout(self._patience):
                return await vectors
        except TimeoutError as error:
            raise ModelError(f"there were no vectors after {self._patience:g} seconds", "network") from error

    async def _embed(self, embedder: Embedder, passages: Sequence[Passage]) -> None:
        for start in range(0, len(passages), _REQUEST):  # what a slow model has made is kept
            some = passages[start : start + _REQUEST]
            vectors = await embedder.passages([passage.text for passage in some])
            named = {passage.id: vector for passage, vector in zip(some, vectors, strict=True)}
            await asyncio.to_thread(self.store.add_vectors, self.key, embedder.name, named)


def fused(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Several rankings as one, by reciprocal rank fusion. What is equal keeps the order of the first."""
    scores: dict[str, float] = {}
    passages: dict[str, Passage] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, 1):
            scores[passage.id] = scores.get(passage.id, 0.0) + 1.0 / (_FUSION + rank)
            passages[passage.id] = passage
    return sorted(passages.values(), key=lambda passage: -scores[passage.id])


def refuse_secrets(passage: Passage) -> None:
    """Raises `ArchiveError` when the passage or a tag holds what looks like a secret."""
    secrets = found("\n".join((passage.text, *passage.tags)))
    if secrets:
        what = "; ".join(dict.fromkeys(map(str, secrets)))
        raise ArchiveError(
            f"the passage holds what looks like a secret ({what}); the archive is kept for ever",
            "write where it is kept instead",
        )
