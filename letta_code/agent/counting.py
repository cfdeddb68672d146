"""How many tokens a request takes. The provider's usage is the truth: each answer corrects the estimate of
the next request.

What a request shares with the last one that was answered is counted as that answer's usage told; only what
differs is estimated, and scaled by how far earlier estimates for the same model were from the truth. So the
error is that of the last few messages, not of the whole, and nothing is counted twice.

Counts only. What is too much, and what is done about it, is not decided here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil

from letta_code.conversations.history import History, Step
from letta_code.core.messages import (
    Block,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from letta_code.core.pictures import pixel_size
from letta_code.core.tokens import estimated_tokens
from letta_code.models.base import ModelInfo, ModelRequest

MESSAGE = 4
"""Tokens that mark a message's role and ends, or a call's or a result's."""

PICTURE = 1_600
"""What a picture is counted as whose size cannot be read: the most that one of the usual size costs."""

_ANSWER = 16_384
_LOWEST, _HIGHEST = 0.5, 2.0
"""Bounds of the correction. Tokenizers of today's models are within them; the rest are servers' mistakes."""
_UNBELIEVABLE = 0.4
"""A usage below this share of what was expected is a server that counts only what its cache did not hold, or
that dropped a part of the prompt."""
_WEIGHT = 1_000  # tokens of evidence that the estimate as it is counts for
_FADES = 60_000  # tokens of evidence after which older evidence counts half
_STEPS_BACK = 20  # steps of a transcript that a resumed conversation learns from


@lru_cache(maxsize=256)
def _text_tokens(text: str) -> int:
    return estimated_tokens(text)


@dataclass(frozen=True, slots=True)
class _Answered:
    """A request that was answered: what of it can be recognised, and what it and its answer took."""

    system: tuple[str, ...]
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    taken: int
    output: int


@dataclass(slots=True)
class _Evidence:
    """Tokens that were estimated, and what the same texts really took."""

    estimated: float = 0.0
    taken: float = 0.0

    def add(self, estimated: float, taken: float) -> None:
        if estimated <= 0 or taken <= 0:
            return
        if self.estimated > _FADES:
            self.estimated, self.taken = self.estimated / 2, self.taken / 2
        self.estimated += estimated
        self.taken += min(max(taken, _LOWEST * estimated), _HIGHEST * estimated)

    @property
    def ratio(self) -> float:
        return (self.taken + _WEIGHT) / (self.estimated + _WEIGHT)


class Counter:
    """Counts for one session. `use` says which model is asked, `learn` what requests really took."""

    def __init__(self) -> None:
        self._info: ModelInfo | None = None
        self._history: History | None = None
        self._answered: dict[str, _Answered] = {}
        self._evidence: dict[str, _Evidence] = {}
        self._sizes: dict[int, tuple[Message | ToolSpec, int]] = {}

    def use(self, info: ModelInfo) -> None:
        """Count for the model `info` from now on: what its tokenizer, its pictures and its own thinking
        cost. What was learned of other models is kept."""
        if self._info is None or self._info.handle != info.handle:
            self._sizes.clear()
        self._info = info

    def resume(self, history: History) -> None:
        """Start from what the transcript of the conversation knows, when the first request is counted."""
        self._history = history

    @property
    def ratio(self) -> float:
        """True tokens for an estimated one, for the model that is used; 1.0 as long as nothing is known."""
        evidence = self._evidence.get(self._handle)
        return 1.0 if evidence is None else evidence.ratio

    @property
    def calibrated(self) -> bool:
        """Whether an answer of this model has told what a request of this conversation took."""
        return self._handle in self._answered

    def request(self, request: ModelRequest) -> int:
        """Tokens that `request` will take, its answer not counted."""
        self._look_back(request)
        last = self._answered.get(self._handle)
        if last is None:
            return self._afresh(request)
        shared = _shared(last.messages, request.messages)
        gone = self._of(last.messages[shared:])
        if gone * self.ratio > last.taken / 2:
            return self._afresh(request)
        new = self._of(request.messages[shared:]) - gone
        if last.system != request.system:
            new += _texts(request.system) - _texts(last.system)
        if last.tools != request.tools:
            new += self._of(request.tools) - self._of(last.tools)
        answer = self._answer(last, request, shared)
        return max(0, round(last.taken + self.ratio * new + answer))

    def learn(self, request: ModelRequest, usage: Usage) -> None:
        """What an answered request took. A usage that cannot be true is left aside."""
        taken = usage.context - usage.output
        expected = self.request(request)
        if taken <= 0 or taken < _UNBELIEVABLE * expected:
            return
        last = self._answered.get(self._handle)
        evidence = self._evidence.setdefault(self._handle, _Evidence())
        if last is None:
            evidence.add(self._estimate(request), taken)
        elif (last.system, last.tools) == (request.system, request.tools):
            known = len(last.messages)
            if _shared(last.messages, request.messages) == known:
                evidence.add(self._of(request.messages[known:]), taken - last.taken)
        answered = _Answered(request.system, request.tools, request.messages, taken, usage.output)
        self._answered[self._handle] = answered
        self._forget(request)

    def estimate(self, item: Message | ToolSpec) -> int:
        """The bare estimate of one message or tool, made once as long as the same object is asked for."""
        if (found := self._sizes.get(id(item))) is not None:
            return found[1]
        size = spec_tokens(item) if isinstance(item, ToolSpec) else message_tokens(item, self._info)
        self._sizes[id(item)] = item, size
        return size

    def message_tokens(self, message: Message) -> int:
        """About how many tokens `message` takes in a request to the model that is used."""
        return round(self.ratio * self.estimate(message))

    def spec_tokens(self, spec: ToolSpec) -> int:
        """About how many tokens a tool's name, description and schema take."""
        return round(self.ratio * self.estimate(spec))

    def text_tokens(self, text: str) -> int:
        """About how many tokens `text` takes."""
        return round(self.ratio * _text_tokens(text))

    # What was sent before -------------------------------------------------------------------------

    def _look_back(self, request: ModelRequest) -> None:
        """Once: find in the transcript what the last answered request took, and how much of `request` it
        was."""
        history, self._history = self._history, None
        if history is None or self._handle in self._answered:
            return
        steps = _comparable(history, self._handle)
        if not steps:
            return
        last = steps[-1]
        known = _position(request.messages, history.entries[last.messages - 1].message)
        taken = last.usage.context - last.usage.output
        largest = max(step.usage.context - step.usage.output for step in steps)
        if known is None or taken <= 0 or taken < _UNBELIEVABLE * largest:
            return
        messages = request.messages[: known + 1]
        answered = _Answered(request.system, request.tools, messages, taken, last.usage.output)
        self._answered[self._handle] = answered
        evidence = self._evidence.setdefault(self._handle, _Evidence())
        for before, after in pairwise(steps):
            between = [entry.message for entry in history.entries[before.messages : after.messages]]
            grown = after.usage.context - after.usage.output - before.usage.context + before.usage.output
            evidence.add(self._of(between), grown)

    def _answer(self, last: _Answered, request: ModelRequest, shared: int) -> float:
        """What is to be added because the answer to `last` is in `request`, and what it took is known."""
        if not last.output or shared < len(last.messages) or shared >= len(request.messages):
            return 0.0
        message = request.messages[shared]
        if message.role != "assistant":
            return 0.0
        estimated = self.ratio * self.estimate(message)
        thoughts = [block for block in message.blocks if isinstance(block, Thinking)]
        whole = all(self._sent(block) for block in thoughts)
        # An output that is far more than what is sent back of it was thinking that nobody will see again.
        if whole and (thoughts or last.output <= 2 * estimated + 100):
            return last.output - estimated
        return 0.0

    # Estimating -----------------------------------------------------------------------------------

    @property
    def _handle(self) -> str:
        return "" if self._info is None else self._info.handle

    def _afresh(self, request: ModelRequest) -> int:
        return round(self.ratio * self._estimate(request))

    def _estimate(self, request: ModelRequest) -> int:
        return _texts(request.system) + self._of(request.tools) + self._of(request.messages)

    def _of(self, items: Sequence[Message] | Sequence[ToolSpec]) -> int:
        return sum(map(self.estimate, items))

    def _forget(self, request: ModelRequest) -> None:
        """Keep only what requests still hold, before the sizes of old messages pile up."""
        if len(self._sizes) > 2 * (len(request.messages) + len(request.tools)) + 64:
            held = {id(item) for item in (*request.messages, *request.tools)}
            self._sizes = {key: value for key, value in self._sizes.items() if key in held}

    def _sent(self, block: Thinking) -> bool:
        return _goes_back(block, self._info)


def answer_room(info: ModelInfo) -> int:
    """Tokens of the window that are kept for the answer: what it may take, within bounds."""
    return min(info.max_output, _ANSWER, info.window // 5)


def message_tokens(message: Message, info: ModelInfo | None = None) -> int:
    """About how many tokens `message` takes in a request, to the model `info` where that is known."""
    return MESSAGE + sum(block_tokens(block, info) for block in message.blocks)


def spec_tokens(spec: ToolSpec, count: Callable[[str], int] = _text_tokens) -> int:
    """About how many tokens a tool's name, description and schema take."""
    return count(f"{spec.name}\n{spec.description}\n{json.dumps(spec.schema, ensure_ascii=False)}")


def block_tokens(
    block: Block, info: ModelInfo | None = None, count: Callable[[str], int] = estimated_tokens
) -> int:
    """About how many tokens a part of a message takes. Thinking that the model will not be sent again takes
    none."""
    match block:
        case Text(text):
            return count(text)
        case Thinking(text):
            return count(text) if _goes_back(block, info) else 0
        case Image():
            return picture_tokens(block, info)
        case ToolCall():
            given = block.raw if block.arguments is None else json.dumps(block.arguments, ensure_ascii=False)
            return MESSAGE + count(f"{block.name} {given}")
        case ToolResult():
            return MESSAGE + sum(block_tokens(item, info, count) for item in block.content)


def picture_tokens(image: Image, info: ModelInfo | None = None) -> int:
    """About how many tokens a picture takes: Anthropic counts its pixels, OpenAI tiles of 512 × 512, both
    after making it smaller; other servers are taken to count as OpenAI does."""
    size = pixel_size(image.data)
    if size is None:
        return PICTURE
    width, height = size
    if info is not None and info.dialect == "anthropic":
        scale = min(1.0, 1568 / max(size))
        return min(PICTURE, ceil(width * scale * height * scale / 750))
    scale = min(1.0, 2048 / max(size))
    scale = min(scale, 768 / min(size))
    return 85 + 170 * ceil(width * scale / 512) * ceil(height * scale / 512)


def _goes_back(block: Thinking, info: ModelInfo | None) -> bool:
    if block.opaque is None:
        return False
    return info is None or (block.dialect == info.dialect and block.model == info.handle)


def _shared(before: Sequence[Message], now: Sequence[Message]) -> int:
    """How many first messages are the same."""
    most = min(len(before), len(now))
    if before[:most] == now[:most]:
        return most
    return next(index for index in range(most) if before[index] != now[index])


def _comparable(history: History, handle: str) -> list[Step]:
    """The last steps of the conversation as far as each went on from the one before it: with the same model
    and system prompt. Empty when the last one was another model's, or an undo took a part of it away."""
    steps: list[Step] = []
    for step in reversed(history.steps_since_compaction[-_STEPS_BACK:]):
        prompt = (step.sent.prompt.base, step.sent.prompt.revision)
        same = not steps or prompt == (steps[0].sent.prompt.base, steps[0].sent.prompt.revision)
        if not same or step.sent.model != handle or not _in_place(history, step):
            break
        steps.insert(0, step)
    return steps


def _in_place(history: History, step: Step) -> bool:
    """Whether the last message that `step` was sent is still where it was."""
    last = step.messages - 1
    return 0 <= last < len(history.entries) and history.entries[last].turn == step.turn


def _position(messages: Sequence[Message], wanted: Message) -> int | None:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index] is wanted:
            return index
    return None


def _texts(texts: Iterable[str]) -> int:
    return sum(map(_text_tokens, texts))
