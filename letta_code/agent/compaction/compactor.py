"""When a conversation is compacted and how: the trigger, the plans in turn, the summary, the record.

A compaction changes the conversation by one record, written when everything is decided. Until then, and when
it is interrupted or fails, the conversation is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from letta_code.agent.compaction import summarising
from letta_code.agent.compaction.planning import Item, Plan, Room, Task, plans
from letta_code.agent.compaction.summarising import Unusable
from letta_code.agent.counting import answer_room, message_tokens, spec_tokens
from letta_code.agent.prompting import Prepared, next_request
from letta_code.conversations.compaction import Compaction
from letta_code.conversations.history import Entry
from letta_code.conversations.store import now
from letta_code.core.events import Compacted, CompactionTrigger, Event, Notice
from letta_code.core.ids import new_message_id
from letta_code.core.messages import Message, Text, Usage
from letta_code.core.text import one_line
from letta_code.core.tokens import estimated_tokens
from letta_code.errors import LettaError, ModelError
from letta_code.models.base import Model, ModelInfo, ModelRequest
from letta_code.models.catalog import LOCAL_PROVIDERS

if TYPE_CHECKING:
    from letta_code.agent.asking import Asking
    from letta_code.agent.session import Session

_MOST, _LEAST = 4_000, 60
"""Tokens of a summary's words."""
_IN_A_ROW = 3
"""Compactions that may follow each other without an answered request between them."""
_REQUESTS = 4
"""Requests for summaries that a turn may make, and one more for every two answered steps."""
_OUT_OF_REACH = frozenset({"auth", "network", "rate_limited", "untrusted", "no_model"})
"""Errors of a server that would refuse the conversation's own request as well."""
_HINT = "start a new conversation (letta --new, in a chat /new), or use a model with a larger window"


@dataclass(frozen=True, slots=True)
class _Made:
    """What was decided: the plan, the words that stand for what goes, the model that wrote them, and what it
    took."""

    plan: Plan
    words: str = ""
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0


class Compactor:
    """Compacts the conversation of `session` within one turn, or once for the person. What the summaries
    take is counted by `asking`."""

    def __init__(self, session: Session, asking: Asking, emit: Callable[[Event], None]) -> None:
        self._session = session
        self._asking = asking
        self._emit = emit
        self._answered = self._in_a_row = self._requests = 0
        self._waits = False  # no summary could be had, and nothing has to go yet

    def answered(self) -> None:
        """A request was answered: what follows is not the same trouble again."""
        self._answered += 1
        self._in_a_row = 0

    async def before(self, request: ModelRequest) -> bool:
        """Compact if `request` would not fit, or is over the threshold; returns whether another request is
        to be made.

        Raises:
            ModelError: `request` does not fit and nothing helps, or no model can be reached.
            StorageError: the compaction cannot be recorded.
        """
        info = self._asking.model.info
        size = self._session.counter.request(request)
        trigger = self._trigger(size, info)
        if trigger is None:
            return False
        if self._in_a_row < _IN_A_ROW:
            try:
                if await self._compact(trigger, request, size) is not None:
                    return True
            except ModelError as error:
                if error.retryable and await self._asking.fall_back(error):
                    return True
                raise
        if size > info.window and (info.known or info.provider in LOCAL_PROVIDERS):
            raise ModelError(
                f"the conversation takes about {size:,} tokens, more than the window of {info.handle} "
                f"({info.window:,}), and cannot be made shorter: what was said last is too long",
                "context_overflow",
                hint=f"give long texts as files; or {_HINT}",
            )
        return False

    async def overflowed(self, request: ModelRequest, error: ModelError, *, hopeless: bool) -> bool:
        """Compact because the server refused `request` as too long; returns whether that could be done.

        Raises:
            ModelError: nothing helps, and it is `hopeless` without. StorageError: as `before`.
        """
        size = self._session.counter.request(request)
        if self._in_a_row < _IN_A_ROW:
            # The count was too low by this at least, or the window is smaller than it is said to be.
            scale = max(1.0, self._asking.model.info.window / max(1, size)) * 1.2**self._in_a_row
            if await self._compact("overflow", request, round(size * scale)) is not None:
                return True
        if not hopeless:
            return False
        raise ModelError(
            f"{error.message}; the conversation cannot be made shorter", error.kind, hint=_HINT
        ) from error

    async def manual(self, instructions: str) -> Compacted | None:
        """Compact because the person asks for it; None when there is nothing to compact.

        Raises:
            LettaError: no summary could be had, or it cannot be recorded.
        """
        _, request = next_request(self._session, self._asking.model.info)
        return await self._compact("manual", request, self._session.counter.request(request), instructions)

    def _trigger(self, size: int, info: ModelInfo) -> CompactionTrigger | None:
        if size + answer_room(info) > info.window:
            return "preflight"
        steps = self._session.conversation.history.steps_since_compaction
        full = size > self._session.compaction.threshold * info.window
        return "threshold" if full and steps and not self._waits else None

    # One compaction -------------------------------------------------------------------------------

    async def _compact(
        self, trigger: CompactionTrigger, request: ModelRequest, size: int, instructions: str = ""
    ) -> Compacted | None:
        """Compact a conversation whose next request takes `size` tokens; None when that cannot be done."""
        task = self._task(trigger, request, size)
        found = plans(task)
        if not found and trigger != "threshold":  # below the threshold or not: it has to fit
            window = self._asking.model.info.window
            limit = window - answer_room(self._asking.model.info)
            task = replace(task, room=replace(task.room, limit=limit))
            found = plans(task)
        made = await self._made(task, trigger, found, instructions)
        if made is None:
            return None
        try:
            message = await self._message(task, made)
            if made.words and message is None:
                self._session.reminder.forget()
                self._session.conversation.add_spent(made.model, made.usage)
                return None
            after = made.plan.kept + (0 if message is None else task.measure(message))
            self._record(task, made, trigger, message, (size, after))
        except BaseException:
            self._session.reminder.forget()  # what was to be told did not reach the conversation
            raise
        self._in_a_row += 1
        plan = made.plan
        gone = sum(not item.is_summary for item in task.items[: plan.cut]) - bool(plan.words)
        done = Compacted(trigger, plan.mode, size, after, gone, made.words, made.usage, made.cost)
        self._emit(done)
        return done

    def _task(self, trigger: CompactionTrigger, request: ModelRequest, size: int) -> Task:
        session, info = self._session, self._asking.model.info
        history = session.conversation.history
        system = (self._fresh().system, *request.system[1:])
        estimate = session.counter.estimate
        unit = size / max(1, _fixed(request.system, request) + sum(map(estimate, request.messages)))
        whole = {entry.id: entry.message for entry in history.entries}

        def measure(message: Message) -> int:
            return ceil(unit * message_tokens(message, info))

        items = [
            Item(entry, ceil(unit * estimate(entry.message)), whole.get(entry.id, entry.message))
            for entry in history.visible
            if entry.message.role != "system"
        ]
        floor = ceil(unit * _fixed(system, request))
        limit = min(info.window - answer_room(info), int(session.compaction.threshold * info.window))
        summary = max(_LEAST, min(_MOST, info.window // 20, (limit - floor) // 3))
        running = session.conversation.turns if trigger != "manual" else 0
        return Task(
            items,
            Room(info.window, limit, floor, summary),
            session.compaction,
            running,
            trigger == "manual",
            lambda entry_id: f"{session.conversation.id}:{entry_id}",
            measure,
        )

    def _going(self, task: Task, plan: Plan) -> list[Entry]:
        """What `plan` takes out of sight, as it was, and the person's words to which its last part belongs.
        What else they told the model (what an undo did) is nowhere but in their reminder, and goes along."""
        told = self._session.conversation.history.told
        found = []
        for item in task.items[: plan.cut]:
            message = item.whole
            if message.role == "user" and not item.is_summary:
                news = tuple(map(Text, told.get(item.entry.turn, ())))
                message = replace(message, blocks=message.blocks + news)
            found.append(replace(item.entry, message=message))
        return found

    def _fresh(self) -> Prepared:
        """The prompt after a compaction."""
        history, info = self._session.conversation.history, self._asking.model.info
        return self._session.prompts.prepare(history.last_prompt, info.system_messages, compacted=True)

    async def _made(
        self, task: Task, trigger: CompactionTrigger, found: Sequence[Plan], instructions: str
    ) -> _Made | None:
        """The first plan for which there is a summary; else a cut without one where something has to go."""
        reason = "a turn asks for so many only"
        told = False
        models = await self._summarisers()
        for plan in found:
            if plan.mode == "shortened":
                return _Made(plan)
            for model in models:
                if self._requests >= _REQUESTS + self._answered // 2:
                    break
                if not told:
                    told = True
                    self._emit(Notice("info", "the conversation is being summarised"))
                try:
                    words, usage = await self._summary(task, plan, model, instructions)
                    return _Made(plan, words, model.info.handle, usage, model.info.cost(usage))
                except Unusable as problem:
                    reason = str(problem)
                except ModelError as error:
                    if model is self._asking.model and self._ends_it(error):
                        raise
                    reason = error.message
        if not found:
            return None
        if trigger == "manual":
            raise LettaError(f"no summary could be had: {reason}", "try again, or choose another model")
        self._emit(Notice("warning", f"no summary could be had: {one_line(reason, 200)}"))
        if trigger == "threshold":
            self._waits = True
            return None
        plan = replace(found[0], mode="cut")
        words = summarising.mechanical(
            self._going(task, plan), one_line(reason, 200), task.room.summary, partial(_text_tokens, task)
        )
        return _Made(plan, words)

    def _ends_it(self, error: ModelError) -> bool:
        """Whether `error` would meet the conversation's own request as well, or the fallback may help."""
        spare = self._session.fallback is not None and not self._asking.instead_of
        return error.kind in _OUT_OF_REACH or (error.retryable and spare)

    async def _summarisers(self) -> list[Model]:
        """Who may write the summary, in order."""
        model, other = self._asking.model, self._session.summariser
        if other is None or other.handle == model.info.handle:
            return [model]
        try:
            return [await other.open(), model]
        except LettaError as error:
            self._emit(Notice("warning", f"{other.handle} cannot write the summary: {error.message}"))
            return [model]

    async def _summary(self, task: Task, plan: Plan, model: Model, instructions: str) -> tuple[str, Usage]:
        """A summary of what `plan` takes out of sight, and what it took.

        Raises:
            Unusable: the answer is none. ModelError: there is no answer.
        """
        prompt = self._session.compaction.prompt or summarising.packaged_prompt()
        words = summarising.words_for(min(task.room.summary, plan.gone // 2))
        window = model.info.window - answer_room(model.info)
        room = int(window * 0.85) - estimated_tokens(prompt) - estimated_tokens(instructions) - 200
        try:
            return await self._asked(task, plan, model, prompt, (room, words), instructions)
        except ModelError as error:
            if error.kind != "context_overflow":
                raise
        return await self._asked(task, plan, model, prompt, (room // 3, words), instructions)

    async def _asked(
        self, task: Task, plan: Plan, model: Model, prompt: str, size: tuple[int, int], instructions: str
    ) -> tuple[str, Usage]:
        """The answer to one request for a summary; `size` is tokens of what it is made of, and words."""
        room, words = size
        text = summarising.material(self._going(task, plan), max(200, room), estimated_tokens)
        asked = Message("user", (Text(summarising.question(text, words, instructions)),), "harness")
        self._requests += 1
        request = ModelRequest((prompt,), (asked,), (), self._session.conversation.id)
        completed = await self._asking.aside(model, request)
        try:
            found = summarising.summary_in(completed)
            if estimated_tokens(found) > estimated_tokens(text):
                raise Unusable("the summary was longer than what it was made of")
        except Unusable:
            self._session.conversation.add_spent(model.info.handle, completed.usage)
            raise
        return found, completed.usage

    async def _message(self, task: Task, made: _Made) -> Message | None:
        """The message that stands for what goes, with the facts that went with it; None when there is none,
        or when it would not be smaller than what it stands for."""
        plan, session = made.plan, self._session
        if not made.words:
            return None
        entries = [entry for entry in self._going(task, plan) if entry.id != plan.words]
        kept = [item.entry.message for item in task.items[plan.cut :]]
        most = min(plan.gone - 1, task.room.limit - plan.kept)
        for first in (True, False, None):
            session.reminder.forget()
            reminder = "" if first is None else await session.reminder.text(first, kept, task.room.window)

            def message(words: str, reminder: str = reminder) -> Message:
                return summarising.summary_message(
                    words, entries, session.conversation.id, reminder, bool(plan.words)
                )

            left = most - task.measure(message(""))
            if left >= task.room.summary or (first is None and left > 0):
                room = min(left - left // 20, 2 * task.room.summary)
                found = message(summarising.bounded(made.words, room, partial(_text_tokens, task)))
                return found if task.measure(found) <= most else None
        return None

    def _record(
        self,
        task: Task,
        made: _Made,
        trigger: CompactionTrigger,
        message: Message | None,
        sizes: tuple[int, int],
    ) -> None:
        plan, conversation = made.plan, self._session.conversation
        first = task.items[plan.cut].entry.id if message is not None and plan.cut < len(task.items) else ""
        conversation.compact(
            Compaction(
                new_message_id(),
                now(),
                conversation.turns,
                trigger,
                plan.mode,
                message,
                first,
                plan.words,
                plan.shortened,
                *sizes,
                made.usage,
                made.model,
                self._fresh().key.revision,
            )
        )


def _fixed(system: Sequence[str], request: ModelRequest) -> int:
    return sum(map(estimated_tokens, system)) + sum(map(spec_tokens, request.tools))


def _text_tokens(task: Task, text: str) -> int:
    return task.measure(Message("user", (Text(text),)))
