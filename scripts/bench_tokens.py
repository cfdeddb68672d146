"""How far the estimate of tokens is from the truth: by kind of text against real tokenizers, and by request
once a provider's usage has corrected it.

The tokenizers are quicktok's o200k_base and cl100k_base, which give tiktoken's ids. Texts are this project's
own (documents, generated code and data) and Python's standard library; each figure is over pieces of text of
about 3,000 characters, shorter where a language has one paragraph each.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import statistics
import sysconfig
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import quicktok
import yaml

from letta_code.agent.counting import MESSAGE, Counter
from letta_code.agent.session import Session
from letta_code.core.messages import Message, Text, Usage
from letta_code.core.tokens import estimated_tokens
from letta_code.models.base import ModelRequest
from letta_code.models.catalog import model_info
from scripts.bench_prefix import HANDLES, played
from scripts.bench_process import Cost
from scripts.bench_texts import prose, python_code

VOCABULARIES = ("o200k_base", "cl100k_base")
_PIECE = 3_000
_MOST = 60  # pieces of one kind
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors: the mean of their sizes, the 95th percentile, the largest, and which way they lean."""

    mean: float
    high: float
    most: float
    lean: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Errors:
        """From pairs of estimate and truth."""
        errors = [guess / truth - 1 for guess, truth in pairs]
        sizes = sorted(map(abs, errors))
        high = sizes[min(len(sizes) - 1, round(0.95 * (len(sizes) - 1)))]
        return cls(statistics.fmean(sizes), high, sizes[-1], statistics.fmean(errors))

    def __str__(self) -> str:
        return f"{self.mean:6.1%} {self.high:6.1%} {self.most:6.1%} {self.lean:+7.1%}"


def token_errors(folder: Path, runs: int, floor: Cost) -> None:
    """Print both tables."""
    print("\nEstimate against real tokenizers: mean, p95, largest error, and the mean with its sign")
    print(f"  {'':16} {'pieces':>6}" + "".join(f"   {name:>28}" for name in VOCABULARIES))
    texts = kinds()
    for kind, pieces in texts.items():
        cells = [
            Errors.of((estimated_tokens(text), truth(text)) for text in pieces)
            for truth in map(_truth, VOCABULARIES)
        ]
        print(f"  {kind:16} {len(pieces):6}" + "".join(f"   {cell}" for cell in cells))
    print("\nRequests of a growing conversation of such texts, counted before they are sent")
    print(f"  {'':16} {'first':>7}   {'later ones':>28}")
    for name in VOCABULARIES:
        first, later = conversation(texts, _truth(name))
        print(f"  {name:16} {first:+7.1%}   {later}")
    print("\nRequests of a session with the scripted server, which counts a token for 4 bytes of JSON")
    for number, handle in enumerate(HANDLES):
        told = asyncio.run(_told(folder / f"tokens-{number}", handle))
        print(f"  {handle:32} {told[0][0] / told[0][1] - 1:+7.1%}   {Errors.of(told[1:])}")


def conversation(texts: dict[str, list[str]], truth: Callable[[str], int]) -> tuple[float, Errors]:
    """The error of the first request's count, and of those after a usage was told, where a provider counts
    with `truth`."""
    chance = random.Random("conversation")
    mixed = [text for pieces in texts.values() for text in pieces]
    counter, messages = Counter(), []
    counter.use(model_info("openai", "gpt-6.2-sol"))
    system = ((_ROOT / "letta_code/agent/base_prompt.md").read_text(),)
    taken = truth(system[0])
    pairs = []
    for _ in range(100):
        asked, said = chance.choice(mixed), chance.choice(mixed)
        messages.append(Message("user", (Text(asked),)))
        taken += truth(asked) + MESSAGE
        request = ModelRequest(system, tuple(messages), (), "conv")
        pairs.append((counter.request(request), taken))
        counter.learn(request, Usage(taken, truth(said)))
        messages.append(Message("assistant", (Text(said),), "agent"))
        taken += truth(said) + MESSAGE
    return pairs[0][0] / pairs[0][1] - 1, Errors.of(pairs[1:])


class _Watched(Counter):
    """Keeps what was counted for each request beside what its answer told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[float, float]] = []

    def learn(self, request: ModelRequest, usage: Usage) -> None:
        """As always, and written down."""
        self.told.append((self.request(request), usage.context - usage.output))
        super().learn(request, usage)


async def _told(folder: Path, handle: str) -> list[tuple[float, float]]:
    counter = _Watched()

    def watch(session: Session) -> None:
        counter.use(session.model.info)
        session.counter = counter

    await played(folder, handle, 20, 5, watch)
    return counter.told


def kinds() -> dict[str, list[str]]:
    """Pieces of text by kind."""
    from pydoc_data.topics import topics

    library = Path(sysconfig.get_path("stdlib"))
    documents = sorted([*_ROOT.glob("*.md"), *_ROOT.glob("docs/*.md"), *_ROOT.glob("skills/*/*.md")])
    sources = sorted(library.glob("*.py"))
    languages = yaml.safe_load(Path(__file__).with_name("bench_texts.yaml").read_text("utf-8"))
    return {
        "English prose": _pieces(topics.values()),
        "Markdown": _pieces(path.read_text("utf-8") for path in documents),
        "Python": _pieces(path.read_text("utf-8", "replace") for path in sources),
        "generated Python": [python_code(seed, _PIECE) for seed in range(20)],
        "JSON": [_json(seed, 2) for seed in range(20)],
        "minified JSON": [_json(seed, None) for seed in range(20)],
        "minified JS": [_script(seed) for seed in range(20)],
        "logs": [_log(seed) for seed in range(20)],
        **languages,
        "emoji": [_emoji(seed) for seed in range(20)],
        "base64": [base64.b64encode(random.Random(seed).randbytes(2_000)).decode() for seed in range(20)],
    }


def _truth(name: str) -> Callable[[str], int]:
    encoding = quicktok.get_encoding(name)
    return lambda text: len(encoding.encode(text))


def _pieces(texts: Iterable[str]) -> list[str]:
    def cut() -> Iterator[str]:
        for text in texts:
            yield from (text[at : at + _PIECE] for at in range(0, len(text) - _PIECE // 2, _PIECE))

    found = list(cut())
    return found[:: max(1, len(found) // _MOST)][:_MOST]


def _json(seed: int, indent: int | None) -> str:
    chance = random.Random(f"json {seed}")
    rows = [
        {
            "id": str(uuid.UUID(int=chance.getrandbits(128))),
            "name": prose(chance.randrange(9_999), 20).strip(),
            "size": chance.randrange(10**7),
            "ratio": chance.random(),
            "active": chance.random() > 0.5,
            "tags": [prose(chance.randrange(9_999), 5).split()[0] for _ in range(3)],
            "parent": None,
        }
        for _ in range(12)
    ]
    return json.dumps(rows, indent=indent, separators=None if indent else (",", ":"))


def _script(seed: int) -> str:
    chance = random.Random(f"script {seed}")
    names = "abcdefghijklmnopqrstuvwxyz"
    words = [
        "length",
        "prototype",
        "call",
        "apply",
        "push",
        "style",
        "document",
        "addEventListener",
        "toString",
    ]
    text = "!function(e,t){"
    while len(text) < _PIECE:
        a, b, c, d = chance.sample(names, 4)
        word, other = chance.choice(words), chance.choice(words)
        text += (
            f"var {a}={b}.{word}||{{}},{c}=function({d}){{return {a}.{other}({d},{chance.randrange(256)})}};"
            f'if(!{c}&&"{word}"in {b})for({d}=0;{d}<{a}.length;{d}++){b}[{d}]={c}({a}[{d}])?1:void 0;'
        )
    return text + "}(this);"


def _log(seed: int) -> str:
    chance = random.Random(f"log {seed}")
    lines = []
    for number in range(30):
        level, status = chance.choice(("INFO", "WARN", "ERROR", "DEBUG")), chance.choice((200, 200, 404, 500))
        lines.append(
            f"2026-11-{1 + seed % 28:02}T12:{number:02}:{chance.randrange(60):02}.{number:03}Z "
            f"{level} [worker-{chance.randrange(9)}] 10.0.{chance.randrange(256)}.{chance.randrange(256)} "
            f"GET /api/v2/items/{chance.randrange(10**6)} {status} {chance.randrange(9_000)}ms "
            f"trace={chance.getrandbits(64):016x}"
        )
    return "\n".join(lines)


def _emoji(seed: int) -> str:
    chance = random.Random(f"emoji {seed}")
    signs = ("😀", "😂", "🎉", "🚀", "✅", "⚠️", "🔥", "💡", "👍🏽", "👩\u200d💻", "🐛", "📦", "❤️", "🇯🇵")
    return " ".join(
        f"{prose(chance.randrange(9_999), 40).strip()} {''.join(chance.choices(signs, k=3))}"
        for _ in range(20)
    )
