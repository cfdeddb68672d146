"""One answer from a model: the request sent, again where that may help, and by the fallback model when the
main one stays out of reach.

A request is sent again only as a whole. What the person saw of an answer that broke off is recorded for
the person (`partial` in the transcript) and announced as void; no later request carries it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from letta_code.core.events import (
    AnswerBroken,
    Event,
    FallbackUsed,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolCallStarted,
)
from letta_code.core.messages import Block, Message, Text, ToolCall, Usage
from letta_code.core.text import one_line, well_formed
from letta_code.errors import LettaError, ModelError
from letta_code.models.base import Completed, Model, ModelRequest, TextPart, ThinkingPart, ToolCallPart

if TYPE_CHECKING:
    from letta_code.agent.session import Session

CUT_OFF = frozenset({"max_tokens", "context_full"})
"""Stop reasons of an answer that a limit ended."""
_EMPTY = "the model answered nothing"


class Refused(LettaError):
    """The model refused to answer."""


class NoAnswer(LettaError):
    """The model answered without a word and without a call."""


@dataclass(slots=True)
class _Shown:
    """What deltas showed of the answer that is arriving."""

    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)


class Asking:
    """Gets the answers of one turn. `usage` and `cost` (US dollars, None when not known) sum up what was
    answered; `unfinished` is what was shown of the last answer that broke off, "" once one was finished."""

    def __init__(self, session: Session, emit: Callable[[Event], None]) -> None:
        self._session = session
        self._emit = emit
        self._fallback: Model | None = None
        self._given_up: ModelError | None = None  # why the main model no longer answers
        self.usage = Usage()
        self.cost: float | None = 0.0
        self.unfinished = ""
        self.discarded: list[tuple[str, Usage]] = []
        """What answers took that said nothing or refused: the model's handle, and the usage."""

    @property
    def model(self) -> Model:
        """The model that gets the next request."""
        return self._fallback or self._session.model

    @property
    def instead_of(self) -> str:
        """The main model's handle while the fallback answers for it, "" else."""
        return "" if self._fallback is None else self._session.model.info.handle

    async def answer(self, step: int, request: ModelRequest) -> Completed | None:
        """The whole answer to `request`, its message as it is recorded; None when the fallback has just
        taken over, which wants a request of its own. An answer that says and asks nothing is asked for once
        more.

        Raises:
            ModelError: no model could be had. Refused: it refused. NoAnswer: it answered nothing.
            StorageError: what was shown of a broken answer cannot be recorded.
        """
        attempt = 0
        empty = False
        while True:
            try:
                completed = await self._streamed(step, request)
            except ModelError as error:
                attempt += 1
                try:
                    wait = self._session.retry.wait(error, attempt)
                except ModelError as final:
                    if not final.retryable or not await self.fall_back(final):
                        raise self._final(final) from error
                    return None
                self._emit(Retrying(attempt, wait, error.message))
                await asyncio.sleep(wait)
                continue
            message = kept(completed.message)
            if message is not None:
                self.unfinished = ""
                return replace(completed, message=message)
            if empty or completed.stop in CUT_OFF:
                raise _no_answer(completed)
            empty = True
            self._emit(Retrying(attempt + 1, 0.0, _EMPTY))

    async def aside(self, model: Model, request: ModelRequest) -> Completed:
        """The whole answer of `model` to a request that is not the conversation's. Nothing of it is shown or
        recorded; what it took counts.

        Raises:
            ModelError: it could not be had.
        """
        attempt = 0
        while True:
            try:
                async with contextlib.aclosing(model.stream(request)) as stream:  # type: ignore[type-var]
                    async for part in stream:
                        if isinstance(part, Completed):
                            self._count(part.usage, model)
                            return part
                raise ModelError("the model's answer ended early", "broken_stream")
            except ModelError as error:
                attempt += 1
                wait = self._session.retry.wait(error, attempt)
                self._emit(Retrying(attempt, wait, error.message))
                await asyncio.sleep(wait)

    async def _streamed(self, step: int, request: ModelRequest) -> Completed:
        shown = _Shown()
        try:
            completed = await self._read(request, shown)
            self._count(completed.usage, self.model)
            if completed.stop == "refusal":
                self._discard(completed)
                raise Refused("the model refused to answer", "say it another way, or choose another model")
        except BaseException as error:
            self._broken(step, shown, _why(error))
            raise
        if kept(completed.message) is None:
            self._discard(completed)
            self._broken(step, shown, _EMPTY)
        return completed

    async def _read(self, request: ModelRequest, shown: _Shown) -> Completed:
        async with contextlib.aclosing(self.model.stream(request)) as stream:  # type: ignore[type-var]
            async for part in stream:
                match part:
                    case TextPart(text):
                        shown.text.append(well_formed(text))
                        self._emit(TextDelta(shown.text[-1]))
                    case ThinkingPart(text):
                        shown.thinking.append(well_formed(text))
                        self._emit(ThinkingDelta(shown.thinking[-1]))
                    case ToolCallPart(call_id, name):
                        self._emit(ToolCallStarted(call_id, name))
                    case Completed():
                        return part
        raise ModelError("the model's answer ended early", "broken_stream")

    def _broken(self, step: int, shown: _Shown, reason: str) -> None:
        text, thinking = "".join(shown.text), "".join(shown.thinking)
        if not text.strip() and not thinking.strip():
            return
        self.unfinished = text.strip() or self.unfinished
        self._emit(AnswerBroken(step, text, reason))
        self._session.conversation.add_partial(step, self.model.info.handle, text, thinking, reason)

    def _discard(self, completed: Completed) -> None:
        self.discarded.append((self.model.info.handle, completed.usage))

    def _count(self, usage: Usage, model: Model) -> None:
        cost = model.info.cost(usage)
        self.usage += usage
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    # The fallback ---------------------------------------------------------------------------------

    async def fall_back(self, final: ModelError) -> bool:
        """Let the fallback answer from now on; False when there is none that could.

        Raises:
            ModelError: it cannot be had either.
        """
        fallback = self._session.fallback
        if self._fallback is not None or fallback is None:
            return False
        try:
            model = await fallback.open()
        except LettaError as problem:
            raise self._both(final, fallback.handle, problem) from problem
        main = self._session.model.info.handle
        if model.info.handle == main:
            return False
        self._fallback, self._given_up = model, final
        self._emit(FallbackUsed(model.info.handle, main, final.message))
        return True

    def _final(self, error: ModelError) -> ModelError:
        """`error` as the turn's end: of both models, where both failed."""
        if self._fallback is None or self._given_up is None:
            return error
        return self._both(self._given_up, self._fallback.info.handle, error)

    def _both(self, main: ModelError, fallback: str, error: LettaError) -> ModelError:
        """One line for two failures. The main model may answer again by itself, so its kind is kept."""
        message = (
            f"{self._session.model.info.handle}: {main.message}; the fallback {fallback}: {error.message}"
        )
        return ModelError(message, main.kind, hint=error.hint or main.hint, retry_after=main.retry_after)


def kept(message: Message) -> Message | None:
    """`message` without empty text and lone surrogates; None when it says and asks nothing (reasoning alone
    is no answer)."""
    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, Text):
            if block.text.strip():
                blocks.append(Text(well_formed(block.text)))
        else:
            blocks.append(block)
    if not any(isinstance(block, Text | ToolCall) for block in blocks):
        return None
    return replace(message, role="assistant", blocks=tuple(blocks), origin="agent", reminder=0)


def _no_answer(completed: Completed) -> NoAnswer | ModelError:
    if completed.stop == "max_tokens":
        return NoAnswer(
            "the model reached its output limit before it said anything", "ask for less at once, or go on"
        )
    if completed.stop == "context_full":
        return ModelError(
            "the model's context window was full before it said anything",
            "context_overflow",
            hint="start a new conversation (letta --new), or use a model with a larger window",
        )
    return NoAnswer(_EMPTY, "say it another way, or choose another model")


def _why(error: BaseException) -> str:
    if isinstance(error, LettaError):
        return one_line(error.message, 300)
    return "interrupted" if isinstance(error, asyncio.CancelledError) else "it failed unexpectedly"
