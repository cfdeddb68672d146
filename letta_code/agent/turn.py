"""One turn: from the person's words to `TurnDone`, step by step.

::

    input journalled → prompt → request (retried as a whole) → answer journalled → calls → checkpoint → …

A worker task does the work and puts events into a queue; `events` hands them on. So a front end that
reads slowly, stops reading or fails never leaves the conversation half-written.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from letta_code.agent.asking import CUT_OFF, Asking, NoAnswer, Refused
from letta_code.agent.calls import CallRunner
from letta_code.agent.compaction.compactor import Compactor
from letta_code.agent.prompting import Prepared, next_request
from letta_code.agent.reminder import news_of, out_of_sight
from letta_code.agent.window import check_fixed, pressure
from letta_code.conversations.history import Sent, Update
from letta_code.core.events import (
    Event,
    MessageDone,
    Notice,
    PromptReady,
    StepDone,
    StepStarted,
    TurnDone,
    TurnError,
    TurnStarted,
    TurnStatus,
)
from letta_code.core.ids import new_message_id
from letta_code.core.messages import Message, Text, ToolCall
from letta_code.core.text import well_formed
from letta_code.core.tooling import Ask
from letta_code.errors import (
    EXIT_FAILED,
    LettaError,
    MemoryStoreError,
    ModelError,
    StorageError,
    SystemPromptOverflow,
)
from letta_code.models.base import Completed, ModelRequest

if TYPE_CHECKING:
    from letta_code.agent.session import Session

_log = logging.getLogger(__name__)

_HOPELESS = frozenset({"invalid_request", "context_overflow", "refusal", SystemPromptOverflow.kind})
"""Errors of a first request that the same input would meet again: it does not stay in the conversation."""


@dataclass(slots=True)
class _Totals:
    """What the turn amounts to so far."""

    steps: int = 0
    text: str = ""
    revision: str = ""


class Turn:
    """One turn of a session. `events` may be read once."""

    def __init__(self, session: Session, text: str, ask: Ask) -> None:
        self._session = session
        self._text = well_formed(text)
        self._ask = ask
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._working = False
        self._cancelled = False
        self._totals = _Totals()
        self._asking = Asking(session, self._emit)
        self._compactor = Compactor(session, self._asking, self._emit)
        self._warned: set[str] = set()

    async def events(self) -> AsyncIterator[Event]:
        """What happens: `TurnStarted` first, exactly one `TurnDone` last. Closing the iterator early
        cancels the turn."""
        self._session.busy = True
        self._worker = asyncio.create_task(self._work())
        try:
            while True:
                event = await self._queue.get()
                yield event
                if isinstance(event, TurnDone):
                    return
        finally:
            if not self._worker.done():
                self._worker.cancel()
                await asyncio.wait({self._worker})
            self._session.busy = False

    def cancel(self) -> None:
        """End the turn: the model's stream and running tools are stopped, what finished is kept. Safe to
        call at any time, and more than once."""
        if not self._cancelled:
            self._cancelled = True
            if self._worker is not None and self._working:
                self._worker.cancel()

    # The worker -----------------------------------------------------------------------------------

    async def _work(self) -> None:
        began = time.monotonic()
        status, error = await self._carried_out()
        try:
            self._sync()
            revision = self._revision()
        except Exception as problem:  # noqa: BLE001 - whatever happens, the turn ends with TurnDone
            revision = self._totals.revision
            error = error or _bug(problem)
        totals, asking = self._totals, self._asking
        self._emit(
            TurnDone(
                "error" if error is not None else status,
                totals.text,
                totals.steps,
                asking.usage,
                time.monotonic() - began,
                asking.cost,
                revision,
                error,
                asking.unfinished,
            )
        )

    async def _carried_out(self) -> tuple[TurnStatus, TurnError | None]:
        """The turn, and its end on record: how it ended, and why it failed."""
        status: TurnStatus = "error"
        error: TurnError | None = None
        started = False
        self._working = True
        try:
            message = await self._input()
            message_id = self._session.conversation.begin_turn(message)
            started = True
            self._emit(
                TurnStarted(self._session.conversation.id, self._session.conversation.turns, message_id)
            )
            status = "interrupted" if self._cancelled else await self._steps()
        except asyncio.CancelledError:
            status = "interrupted"
        except LettaError as problem:
            error = _turn_error(problem)
        except Exception as problem:  # noqa: BLE001 - whatever happens, the turn ends with TurnDone
            error = _bug(problem)
        self._working = False
        if started:
            error = self._close_journal("error" if error is not None else status, error) or error
        else:
            self._session.reminder.forget()
            conversation = self._session.conversation
            self._emit(TurnStarted(conversation.id, conversation.turns, ""))
        return status, error

    async def _input(self) -> Message:
        session = self._session
        history = session.conversation.history
        seen, info = [entry.message for entry in history.visible], session.model.info
        reminder = await session.reminder.text(
            not history.entries,
            seen,
            info.window,
            news_of(session.conversation),
            pressure(self._used(), info, session.compaction.threshold),
            out_of_sight(history),
        )
        blocks = (Text(reminder), Text(self._text)) if reminder else (Text(self._text),)
        return Message("user", blocks, "person", len(blocks) - 1)

    def _used(self) -> int:
        """Tokens that the conversation took before this turn, where a compaction was not the last of it."""
        session = self._session
        if not session.conversation.history.steps_since_compaction:
            return 0
        try:
            return session.counter.request(next_request(session, session.model.info)[1])
        except MemoryStoreError:
            return 0  # the request of this turn says so

    def _close_journal(self, status: TurnStatus, error: TurnError | None) -> TurnError | None:
        dropped = error is not None and error.kind in _HOPELESS and self._totals.steps == 0
        words = None if error is None else error.message
        try:
            self._session.conversation.end_turn(
                status, words, dropped=dropped, discarded=self._asking.discarded
            )
        except StorageError as problem:
            return error or _turn_error(problem)
        except Exception as problem:  # noqa: BLE001 - whatever happens, the turn ends with TurnDone
            return error or _bug(problem)
        if dropped:
            self._session.reminder.forget()
            self._emit(Notice("info", "Your message was not added to the conversation."))
        return None

    def _sync(self) -> None:
        syncing = self._session.syncing
        if syncing is None:
            return
        if news := syncing.news():
            self._emit(Notice("warning", news))
        try:
            syncing.moved_to(self._revision())
        except OSError as problem:
            self._emit(Notice("warning", f"memory sync cannot be started: {problem.strerror}"))

    def _revision(self) -> str:
        try:
            return self._session.memory.head()
        except MemoryStoreError:
            return self._totals.revision

    # Steps ----------------------------------------------------------------------------------------

    async def _steps(self) -> TurnStatus:
        session = self._session
        session.conversation.set_extra(session.skills)
        step = 0
        while True:
            step += 1
            if not await self._step(step):
                return "success"
            if session.max_turns is not None and step >= session.max_turns:
                return "max_turns"

    async def _step(self, step: int) -> bool:
        """Make one step and commit it; returns whether the model waits for results."""
        session = self._session
        prepared, request, completed = await self._answered(step)
        message = completed.message
        update = None if prepared.update is None else Update(new_message_id(), prepared.update)
        digest = hashlib.sha256("\0".join(request.system).encode()).hexdigest()
        asking = self._asking
        sent = Sent(prepared.key, asking.model.info.handle, digest, update, asking.instead_of)
        conversation = session.conversation
        message_id = conversation.add_answer(step, message, completed.stop, completed.usage, sent)
        self._totals.text = message.text
        self._emit(MessageDone(message_id, message))
        self._tell(completed)
        calls = message.tool_calls
        finished = True
        if calls:
            cut = message.blocks[-1] if completed.stop in CUT_OFF else None
            finished = await self._run(calls, cut if isinstance(cut, ToolCall) else None, prepared.key.seen)
        conversation.commit_step()
        self._totals.steps = step
        self._emit(StepDone(step, completed.usage))
        if not finished:
            raise asyncio.CancelledError
        return bool(calls)

    def _request(self, fresh: bool) -> tuple[Prepared, ModelRequest]:
        info = self._asking.model.info
        prepared, request = next_request(self._session, info, fresh=fresh)
        self._totals.revision = prepared.key.seen
        if prepared.warning and prepared.warning not in self._warned:
            self._warned.add(prepared.warning)
            self._emit(Notice("warning", prepared.warning))
        self._emit(PromptReady(prepared.key, prepared.how, prepared.problems))
        return prepared, request

    async def _answered(self, step: int) -> tuple[Prepared, ModelRequest, Completed]:
        """The model's answer, and what it was asked. A fallback that takes over may want another prompt, and
        a conversation that was compacted is another request."""
        began = fresh = False
        while True:
            prepared, request = self._request(fresh)
            if not began:
                self._emit(StepStarted(step))
                began = True
            self._check_fixed(prepared, request)
            if await self._compactor.before(request):
                continue
            try:
                completed = await self._asking.answer(step, request)
            except ModelError as error:
                if error.kind != "context_overflow":
                    raise
                kept = prepared.key.revision != prepared.key.seen
                fresh = not await self._compactor.overflowed(request, error, hopeless=not kept)
                continue
            if completed is not None:
                self._compactor.answered()
                self._session.counter.learn(request, completed.usage)
                return prepared, request, completed

    def _check_fixed(self, prepared: Prepared, request: ModelRequest) -> None:
        """Nothing is sent when system prompt and tools alone fill the window: servers would refuse it, or
        leave out a part of memory in silence."""
        session, revision = self._session, prepared.key.revision
        check_fixed(
            request,
            session.counter,
            self._asking.model.info,
            session.prompts.base,
            lambda: session.memory.snapshot(revision),
        )

    def _tell(self, completed: Completed) -> None:
        for note in completed.notes:
            if note not in self._warned:
                self._warned.add(note)
                self._emit(Notice("warning", note))
        if completed.stop == "max_tokens":
            self._emit(Notice("warning", "The answer reached the model's output limit and was cut off."))
        elif completed.stop == "context_full":
            self._emit(Notice("warning", "The answer filled the model's context window and was cut off."))

    async def _run(self, calls: tuple[ToolCall, ...], cut: ToolCall | None, known: str) -> bool:
        """Answer all calls; returns False when the person interrupted."""
        session = self._session
        runner = CallRunner(
            session.toolbox,
            session.policy,
            session.conversation,
            self._ask,
            self._emit,
            session.memory,
            known,
        )
        try:
            await runner.run(calls, cut)
        except asyncio.CancelledError:
            runner.interrupt(calls)
            return False
        return True

    def _emit(self, event: Event) -> None:
        self._queue.put_nowait(event)


def _turn_error(problem: LettaError) -> TurnError:
    if isinstance(problem, ModelError):
        kind, retryable = str(problem.kind), problem.retryable
    elif isinstance(problem, SystemPromptOverflow):
        kind, retryable = problem.kind, False
    elif isinstance(problem, Refused):
        kind, retryable = "refusal", False
    elif isinstance(problem, NoAnswer):
        kind, retryable = "no_answer", False
    else:
        kind, retryable = type(problem).__name__.removesuffix("Error").lower(), False
    return TurnError(kind, problem.message, problem.hint, retryable, problem.exit_code)


def _bug(problem: Exception) -> TurnError:
    _log.error("bug in a turn", exc_info=problem)
    text = f"{type(problem).__name__}: {problem}"
    return TurnError("bug", text, "this is a bug; the log has the traceback", False, EXIT_FAILED)
