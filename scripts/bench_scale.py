"""What conversations cost when there are very many messages: the search index and the longest conversation.

The messages are made up with a fixed seed: English, Chinese and code whose words are as unevenly common as
in real text. Queries are drawn from the same messages, so a common word is asked for as often as it is said.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from uuid import UUID

from letta_code.conversations.history import Sent, answer_record, input_record
from letta_code.conversations.store import ConversationStore
from letta_code.conversations.transcript import Record, encoded
from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.core.messages import Message, PromptKey, Text, ToolCall, ToolResult, Usage
from letta_code.core.query import parse
from letta_code.database import open_database
from letta_code.paths import Paths
from letta_code.recall import index
from letta_code.recall.recall import Recall
from letta_code.recall.search import Wanted

LONG = 10_000  # messages of the longest conversation
_SENT = Sent(PromptKey("0" * 64, "1" * 40, "1" * 40), "openai/gpt-5.5", "2" * 64)
_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_QUERIES = 60  # of each kind


class Language:
    """Words of three kinds, the n-th about n times as rare as the first."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        self.english = [
            "".join(self.random.choices(letters, range(26, 0, -1), k=self.random.randint(2, 9)))
            for _ in range(40_000)
        ]
        characters = [chr(0x4E00 + place) for place in self.random.sample(range(20_000), 3_500)]
        common = list(itertools.accumulate(1 / (rank + 20) ** 0.9 for rank in range(3_500)))
        self.chinese = [
            "".join(self.random.choices(characters, cum_weights=common, k=2)) for _ in range(30_000)
        ]
        self._weights = {
            len(words): list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))
            for words in (self.english, self.chinese)
        }

    def words(self, of: Sequence[str], count: int) -> list[str]:
        """Words as they come in a text."""
        return self.random.choices(of, cum_weights=self._weights[len(of)], k=count)

    def text(self, size: int) -> str:
        """A text of about `size` words."""
        kind = self.random.random()
        count = max(3, int(self.random.expovariate(1 / size)))
        if kind < 0.4:
            return " ".join(self.words(self.english, count))
        if kind < 0.75:
            return "".join(
                word + ("，" if place % 6 == 5 else "")
                for place, word in enumerate(self.words(self.chinese, count))
            )
        return "\n".join(self._code_line() for _ in range(max(1, count // 5)))

    def _code_line(self) -> str:
        first, second, third, fourth = self.words(self.english, 4)
        name = f"{first}_{second}" if self.random.random() < 0.5 else f"{first.title()}{second.title()}"
        return self.random.choice(
            (
                f"    {third} = {name}.{fourth}({self.random.randrange(1000)})",
                f"src/{first}/{second}.py:{third}: error E{self.random.randrange(1000, 9999)}",
                f"def {name}({third}: {fourth.title()}) -> None:  # 0x{self.random.getrandbits(32):08x}",
            )
        )


def transcript(
    language: Language, key: AgentKey, conversation: str, size: int, at: datetime
) -> Iterator[Record]:
    """The records of a conversation of `size` messages: turns of an input, a call, its result, an answer."""
    rng = language.random
    header = {"kind": "conversation", "v": 1, "id": conversation, "org": key.org, "agent": key.agent}
    yield header | {"created_at": at.isoformat(timespec="milliseconds"), "cwd": "/project"}
    made = turn = 0
    while made < size:
        turn += 1
        at += timedelta(minutes=rng.randint(1, 90))
        when = at.isoformat(timespec="milliseconds")

        def id() -> str:
            return f"message-{UUID(int=rng.getrandbits(128), version=4)}"

        yield input_record(id(), when, turn, Message("user", (Text(language.text(25)),)))
        call = ToolCall(f"call-{turn}", "Grep", {"pattern": language.words(language.english, 1)[0]})
        asked, said = id(), id()
        yield answer_record(asked, when, turn, 1, Message("assistant", (call,)), "tool_use", Usage(), _SENT)
        result = ToolResult(call.id, (Text(language.text(60)),))
        yield {"kind": "result", "call_id": call.id, "result": {"call_id": call.id, "status": "ok",
               "content": [{"text": result.text, "type": "text"}], "type": "tool_result"}}  # fmt: skip
        yield {"kind": "step", "at": when, "turn": turn, "step": 1, "assistant": asked, "results": id()}
        answer = Message("assistant", (Text(language.text(50)),))
        yield answer_record(said, when, turn, 2, answer, "end_turn", Usage(), _SENT)
        yield {"kind": "step", "at": when, "turn": turn, "step": 2, "assistant": said, "results": None}
        yield {"kind": "turn", "at": when, "turn": turn, "status": "success", "error": None, "dropped": False}
        made += 4


def store_messages(paths: Paths, language: Language, count: int) -> tuple[list[AgentKey], str, int]:
    """Write transcripts with `count` messages of two agents; returns these, the id of the longest
    conversation, and how many bytes they have."""
    rng = language.random
    keys = [AgentKey(DEFAULT_ORG, f"agent-{UUID(int=rng.getrandbits(128), version=4)}") for _ in range(2)]
    longest = ""
    written = size = conversations = 0
    while written < count:
        conversation = f"conv-{UUID(int=rng.getrandbits(128), version=4)}"
        wanted = min(count - written, max(4, int(rng.expovariate(1 / 500))))
        key = keys[rng.random() < 0.2]
        if not longest:
            longest, key, wanted = conversation, keys[0], LONG
        at = _BEGIN + timedelta(hours=6 * conversations)
        lines = [encoded(record) for record in transcript(language, key, conversation, wanted, at)]
        path = paths.conversation(key, conversation)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))
        size += path.stat().st_size
        written += (wanted + 3) // 4 * 4
        conversations += 1
    print(f"{written:,} messages in {conversations:,} conversations, {size / 1e6:,.0f} MB")
    return keys, longest, size


def queries(language: Language) -> Mapping[str, Callable[[], str]]:
    """How a query of each kind is drawn."""
    rng = language.random

    def english(count: int) -> list[str]:
        return language.words(language.english, count)

    def chinese(count: int) -> list[str]:
        return language.words(language.chinese, count)

    return {
        "an English word as it comes": lambda: english(1)[0],
        "a rare English word": lambda: rng.choice(language.english[5_000:]),
        "two English words": lambda: " ".join(english(2)),
        "an English phrase": lambda: f'"{" ".join(english(2))}"',
        "a Chinese word of two characters": lambda: chinese(1)[0],
        "a rare Chinese word": lambda: rng.choice(language.chinese[5_000:]),
        "four Chinese characters": lambda: "".join(chinese(2)),
        "two Chinese words": lambda: " ".join(chinese(2)),
        "one Chinese character": lambda: chinese(1)[0][0],
        "a name: foo_bar": lambda: "_".join(english(2)),
        "a name: FooBar": lambda: "".join(word.title() for word in english(2)),
        "a path": lambda: f"src/{'/'.join(english(2))}.py",
        "an error code": lambda: f"E{rng.randrange(1000, 9999)}",
        "the beginning of a word": lambda: rng.choice(language.english)[:4] + "*",
        "a question of eight words": lambda: " ".join(english(8)),
        "a Chinese question": lambda: "".join(chinese(6)),
        "nothing that is there": lambda: f"zzz{rng.getrandbits(40):x}",
    }


def search_costs(paths: Paths, keys: Sequence[AgentKey], language: Language) -> None:
    """Print how long searches take, from the words to the texts of ten hits."""
    recall = Recall(paths)
    since = int((_BEGIN + timedelta(days=100)).timestamp() * 1000)
    narrower: Mapping[str, Callable[[Wanted], Wanted]] = {
        "": lambda wanted: wanted,
        ", what the person said": lambda wanted: replace(wanted, roles=("user",)),
        ", in a month": lambda wanted: replace(wanted, since=since, until=since + 30 * 86_400_000),
    }
    kinds = queries(language)
    print(f"\nSearches of an agent with four fifths of the messages: {_QUERIES} of each kind, ms")
    print(f"{'':58}{'median':>8}{'p95':>8}{'of CPU':>8}{'p95':>8}{'found':>8}")
    everything: list[float] = []
    everything_cpu: list[float] = []
    for name, drawn in kinds.items():
        for addition, narrowed in narrower.items():
            if addition and not name.endswith(("as it comes", "two characters")):
                continue
            times, cpu, hits = [], [], 0
            for _ in range(_QUERIES):
                wanted = narrowed(Wanted(parse(drawn()), agent=keys[0]))
                begin, begin_cpu = time.perf_counter(), time.process_time()
                found = recall.search(wanted)
                times.append((time.perf_counter() - begin) * 1000)
                cpu.append((time.process_time() - begin_cpu) * 1000)
                hits += bool(found.total)
            everything += times
            everything_cpu += cpu
            print(f"{name + addition:58}{_spread(times)}{_spread(cpu)}{hits / _QUERIES:8.0%}")
    print(f"{'all of them':58}{_spread(everything)}{_spread(everything_cpu)}")
    times = []
    for _ in range(20):
        database = open_database(paths.recall_index(), index.SCHEMA)
        begin = time.perf_counter()
        index.update(database, paths, keys[0])
        times.append((time.perf_counter() - begin) * 1000)
        database.close()
    print(f"{'of that, looking whether a transcript changed':58}{median(times):8.1f}")


def _spread(times: list[float]) -> str:
    return f"{median(times):8.1f}{quantiles(times, n=20)[-1]:8.1f}"


def conversation_costs(paths: Paths, key: AgentKey, longest: str) -> None:
    """Print what the longest conversation costs to open and to add to, and its turn to the index."""
    store, recall = ConversationStore(paths), Recall(paths)
    opened, added, found = [], [], []
    for _ in range(7):
        begin = time.perf_counter()
        conversation = store.open(key, longest)
        opened.append((time.perf_counter() - begin) * 1000)
        begin = time.perf_counter()
        conversation.begin_turn(Message("user", (Text("once more"),)))
        conversation.end_turn("success")
        added.append((time.perf_counter() - begin) * 1000)
        begin = time.perf_counter()
        recall.search(Wanted(parse("once more"), agent=key, conversation=longest))
        found.append((time.perf_counter() - begin) * 1000)
        conversation.close()
    short = store.create(key, Path("/"))
    first = []
    for _ in range(7):
        begin = time.perf_counter()
        short.begin_turn(Message("user", (Text("once more"),)))
        short.end_turn("success")
        first.append((time.perf_counter() - begin) * 1000)
    short.close()
    print(f"\nA conversation of {LONG:,} messages, median ms")
    print(f"{'opening it':58}{median(opened):8.1f}")
    print(f"{'adding an input and the end of a turn':58}{median(added):8.1f}")
    print(f"{'the same in a new conversation':58}{median(first):8.1f}")
    print(f"{'a search after that, which reads what is new':58}{median(found):8.1f}")


def scale_costs(count: int, folder: Path) -> None:
    """Print what `count` stored messages cost."""
    paths = Paths.from_environment({"LETTA_HOME": str(folder)})
    print(f"\nMany messages {json.dumps({'messages': count, 'seed': 20})}")
    keys, longest, size = store_messages(paths, Language(20), count)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    indexed = Recall(paths).rebuild()
    took, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    held = Recall(paths).status()
    print(
        f"index: {held.bytes / 1e6:,.0f} MB, {held.bytes / size:.0%} of the transcripts; "
        f"built in {took:,.0f} s ({cpu:,.0f} s of CPU), {indexed / took:,.0f} messages/s "
        f"({indexed / cpu:,.0f} per second of CPU)"
    )
    search_costs(paths, keys, Language(20))
    conversation_costs(paths, keys[0], longest)
