"""The tool calls of one answer: validate, ask, run, record. One result for each call, whatever happens.

Neighbouring calls without effects run together; every other call runs alone, in its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from letta_code.agent.origin import outside_of, said_by_person, trace
from letta_code.conversations.store import Conversation
from letta_code.core.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    MemoryChanged,
    ToolDone,
    ToolProgress,
    ToolRunning,
)
from letta_code.core.messages import Image, Text, ToolCall, ToolResult
from letta_code.core.text import one_line, well_formed
from letta_code.core.tooling import ApprovalRequest, Ask, ToolOutput
from letta_code.errors import LettaError, MemoryStoreError, ToolError, UsageError
from letta_code.memory.scope import PROJECTS, overview_path
from letta_code.memory.secrets import masked
from letta_code.tools.base import Arguments, Call, Remembered, Tool
from letta_code.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.tools.permissions.policy import Policy

_log = logging.getLogger(__name__)
_SHOWN = 300  # characters of received arguments in an error


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call whose tool is known and whose arguments are valid."""

    call: ToolCall
    tool: Tool[Any]
    arguments: Arguments
    effects: bool
    outside: str = ""
    """Where text that it would put into memory was copied from, when that is not the person."""
    consented: bool = False
    """The person was asked and agreed."""
    judged: tuple[Path, ...] = ()
    """The files that permission was judged for, resolved."""


class CallRunner:
    """Runs the calls of one answer. Results go to the conversation's journal as they come."""

    def __init__(
        self,
        toolbox: Toolbox,
        policy: Policy,
        conversation: Conversation,
        ask: Ask,
        emit: Callable[[Event], None],
        memory: MemoryRepository,
        known: str = "",
    ) -> None:
        """`known` is the memory revision that the model had been told when it made the calls."""
        self._memory = memory
        self._known = known
        self._toolbox = toolbox
        self._policy = policy
        self._conversation = conversation
        self._ask = ask
        self._emit = emit
        self._began: dict[str, float] = {}
        self._answered: set[str] = set()

    async def run(self, calls: Sequence[ToolCall], cut: ToolCall | None = None) -> None:
        """Answer every call. `cut` is one that the output limit broke off: it is not run.

        When this is cancelled, or the journal cannot be written, calls may be left without a result;
        `interrupt` gives them one.

        Raises:
            StorageError: the journal cannot be written.
        """
        together: list[_Ready] = []
        for call in calls:
            ready = self._check(call, call is cut)
            if isinstance(ready, _Ready) and not ready.effects:
                together.append(ready)
                continue
            await self._run_together(together)
            together = []
            if isinstance(ready, _Ready):
                if (allowed := await self._allowed(ready)) is not None:
                    self._conversation.mark_started(call.id, call.name)
                    await self._run_one(allowed)
            else:
                self._finish(call, ready)
        await self._run_together(together)

    def interrupt(self, calls: Sequence[ToolCall]) -> None:
        """Give every call that has no result yet one that says it was interrupted."""
        for call in calls:
            if call.id not in self._answered:
                words = (
                    "Interrupted by the person while it ran: it may have had part of its effect."
                    if call.id in self._began
                    else "Interrupted by the person before it ran; nothing was done."
                )
                self._finish(call, ToolOutput.of(words, status="interrupted"))

    # One call -------------------------------------------------------------------------------------

    def _check(self, call: ToolCall, cut: bool) -> _Ready | ToolOutput:
        if cut:
            return _error("The output limit cut this call off, so it was not run. Write a shorter one.")
        if call.arguments is None:
            return _error(f"The arguments are not a JSON object ({call.problem}); received: {_cut(call.raw)}")
        tool = self._toolbox.get(call.name)
        if tool is None:
            return _error(
                f"There is no tool {_cut(call.name)!r}. The tools are: {', '.join(self._toolbox.names)}."
            )
        try:
            arguments = tool.arguments.model_validate(dict(call.arguments))
            return _Ready(call, tool, arguments, tool.has_effects(arguments))
        except ValidationError as error:
            return _error(_explained(call, error))
        except ToolError as error:
            return _error(str(error))
        except Exception as error:  # noqa: BLE001 - a tool's bug must not end the turn
            return self._bug(call, error)

    async def _allowed(self, ready: _Ready) -> _Ready | None:
        """The call with what was found out about it, when it may run; else None, and it has its result."""
        call, tool = ready.call, ready.tool
        try:
            remembered = tool.remembers(ready.arguments)
            if remembered is not None:
                ready = replace(ready, outside=await asyncio.to_thread(self._traced, remembered))
            verdict = self._policy.judge(tool, ready.arguments, ready.outside)
            ready = replace(ready, judged=verdict.paths)
            if verdict.decision == "allow":
                return ready
            if verdict.decision == "deny":
                self._finish(call, _denied(verdict.reason))
                return None
            request = ApprovalRequest(
                call.id,
                call.name,
                tool.kind,
                tool.title(ready.arguments),
                verdict.reason,
                verdict.rule,
                tool.preview(ready.arguments),
                verdict.remedy or "",
            )
        except ToolError as error:
            self._finish(call, _error(str(error)))
            return None
        self._emit(ApprovalAsked(request))
        decision = await self._ask(request)
        self._emit(ApprovalGiven(call.id, decision))
        if decision.choice == "deny":
            self._finish(call, _denied(decision.feedback or "the person said no"))
            return None
        if decision.choice == "always" and verdict.rule:
            try:
                self._policy.grant(verdict.rule)
            except UsageError:
                _log.exception("the rule %r that was offered is not one", verdict.rule)
        return replace(ready, consented=True)

    def _traced(self, remembered: Remembered) -> str:
        """Where text for memory was copied from, when neither the person nor memory said it; "" else."""
        messages = self._conversation.messages
        trusted = [remembered.replaced, *said_by_person(messages), *self._in_prompt()]
        found = trace(remembered.text, outside_of(messages, self._outside_name), trusted)
        if not found and remembered.from_outside:
            return "by the model's own word it is from tool output"
        return found

    def _in_prompt(self) -> list[str]:
        """The memory that the model has before it without asking for it."""
        try:
            snapshot = self._memory.snapshot(self._known or None)
            projects = snapshot.find(PROJECTS.rstrip("/"))
            slugs = snapshot.objects.folder(projects.id) if projects and projects.kind == "folder" else ()
            paths = (overview_path(entry.name) for entry in slugs)
            overviews = [snapshot.read(path) for path in paths if snapshot.find(path) is not None]
            texts = [data.decode("utf-8", "replace") for data in overviews]
            return texts + [block.text for block in snapshot.blocks]
        except MemoryStoreError:
            return []  # the tool says what is wrong with memory

    def _outside_name(self, call: ToolCall) -> str:
        """A call's title for people; "" for one that only looked at memory."""
        tool = self._toolbox.get(call.name)
        if tool is None:
            return call.name
        if tool.kind == "memory":
            return ""
        try:
            arguments = tool.arguments.model_validate(dict(call.arguments or {}))
            inside = self._policy.in_memory(tool.accesses(arguments))
            return "" if inside else one_line(tool.title(arguments), 200)
        except (ValidationError, ToolError):
            return call.name

    async def _run_together(self, group: list[_Ready]) -> None:
        judged = [await self._allowed(ready) for ready in group]
        allowed = [ready for ready in judged if ready is not None]
        if len(allowed) == 1:
            await self._run_one(allowed[0])
        elif allowed:
            try:
                async with asyncio.TaskGroup() as tasks:
                    for ready in allowed:
                        tasks.create_task(self._run_one(ready))
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from errors

    async def _run_one(self, ready: _Ready) -> None:
        call = ready.call
        self._began[call.id] = time.monotonic()

        def progress(text: str) -> None:
            self._emit(ToolProgress(call.id, well_formed(text)))

        try:
            self._emit(ToolRunning(call, one_line(ready.tool.title(ready.arguments), 200)))
            around = Call(
                call.id,
                self._conversation.id,
                self._known,
                bool(ready.outside),
                ready.consented,
                ready.judged,
                progress,
                self._conversation.turns,
                self._conversation.pointer,
            )
            output = await ready.tool.run(ready.arguments, around)
        except ToolError as error:
            output = _error(str(error))
        except LettaError as error:
            output = _error(f"{error.message}. {error.hint}".strip())
        except Exception as error:  # noqa: BLE001 - a tool's bug must not end the turn
            output = self._bug(call, error)
        self._finish(call, output)

    def _bug(self, call: ToolCall, error: Exception) -> ToolOutput:
        _log.exception("the tool %s failed unexpectedly", call.name)
        return _error(f"The tool failed unexpectedly: {type(error).__name__}: {_cut(str(error))}")

    def _finish(self, call: ToolCall, output: ToolOutput) -> None:
        output = _sendable(output)
        self._conversation.add_result(ToolResult(call.id, output.content, output.status))
        self._answered.add(call.id)
        began = self._began.get(call.id)
        seconds = 0.0 if began is None else time.monotonic() - began
        self._emit(ToolDone(call.id, call.name, output, seconds))
        if output.committed is not None:
            self._emit(MemoryChanged(output.committed))


def _sendable(output: ToolOutput) -> ToolOutput:
    """`output` as providers take it: no empty text, no lone surrogate, never nothing."""
    content: list[Text | Image] = []
    for block in output.content:
        if isinstance(block, Image):
            content.append(block)
        elif block.text.strip():
            content.append(Text(well_formed(block.text)))
    return replace(output, content=tuple(content) or (Text("(no output)"),))


def _error(text: str) -> ToolOutput:
    return ToolOutput.of(text, status="error")


def _denied(reason: str) -> ToolOutput:
    return ToolOutput.of(f"Not allowed: {reason.removesuffix('.')}. It was not run.", status="denied")


def _cut(text: str) -> str:
    shown = masked(text[: 4 * _SHOWN])  # before the cut, which could leave half a secret
    whole = len(text) <= _SHOWN
    return well_formed(shown if whole else f"{shown[:_SHOWN]}… ({len(text):,} characters)")


def _explained(call: ToolCall, error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False)[:8]:
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        lines.append(f"- {where}: {item['msg']}")
    received = _cut(json.dumps(dict(call.arguments or {}), ensure_ascii=False))
    return "\n".join([f"Wrong arguments for {call.name}:", *lines, f"Received: {received}"])
