"""Everything that happens in a turn, as data.

A turn yields exactly one `TurnStarted` first and exactly one `TurnDone` last, whatever happens. Deltas
are for eyes; `MessageDone` and `ToolDone` carry what is recorded. After `AnswerBroken`, what the deltas of
that answer showed is void. An event holds strings, numbers and core values only, so every event is one
line of JSON (`core.codec`, `docs/stream-json.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from letta_code.core.messages import Message, PromptKey, ToolCall, Usage
from letta_code.core.tooling import ApprovalRequest, Decision, MemoryCommitted, ToolOutput


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The person's input is journalled; `message_id` names it."""

    conversation_id: str
    turn: int
    message_id: str
    type: Literal["turn_started"] = "turn_started"


@dataclass(frozen=True, slots=True)
class PromptReady:
    """Which prompt the next request carries, and how it came about.

    `stored`: unchanged; `compiled`: compiled anew; `update`: the system prompt keeps its bytes and a
    memory update is sent inside the conversation. `problems` are memory files that could not be used.
    """

    key: PromptKey
    how: Literal["stored", "compiled", "update"]
    problems: tuple[str, ...] = ()
    type: Literal["prompt_ready"] = "prompt_ready"


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A request is about to be sent. Steps of a turn count from 1."""

    step: int
    type: Literal["step_started"] = "step_started"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Words of the answer as they arrive."""

    text: str
    type: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """Reasoning as it arrives."""

    text: str
    type: Literal["thinking_delta"] = "thinking_delta"


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The model began to write a tool call; its arguments are not there yet."""

    call_id: str
    name: str
    type: Literal["tool_call_started"] = "tool_call_started"


@dataclass(frozen=True, slots=True)
class AnswerBroken:
    """The answer of step `step` ended unfinished after something of it was shown: the deltas since the
    last request are void. `text` is what was shown of it, thinking left out; the transcript keeps both,
    the conversation neither. `Retrying`, `FallbackUsed` or the end of step or turn follows."""

    step: int
    text: str
    reason: str
    type: Literal["answer_broken"] = "answer_broken"


@dataclass(frozen=True, slots=True)
class FallbackUsed:
    """The model `instead_of` stays out of reach, so `model` answers the rest of this turn. Both are
    handles; `reason` is what the last request to the first one failed with."""

    model: str
    instead_of: str
    reason: str
    type: Literal["fallback_used"] = "fallback_used"


CompactionTrigger = Literal["preflight", "threshold", "overflow", "manual"]
"""Why a conversation is compacted: the next request would not fit, the last answer crossed the threshold,
the server refused a request as too long, or the person asked for it."""

CompactionMode = Literal["sliding_window", "all", "cut", "shortened"]
"""How: the oldest part is summarised; all of it; all of it is left out without a summary of a model, since
none could be had; or large tool results are shortened, and nothing else."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What requests carry of the conversation has become shorter; the transcript keeps everything. `before`
    and `after` are estimated tokens of the next request, `messages` is how many messages went out of sight,
    `summary` what stands for them ("" when results were shortened only); `usage` and `cost_usd` (None: not
    known) are what the summary took, which the turn's sums contain."""

    trigger: CompactionTrigger
    mode: CompactionMode
    before: int
    after: int
    messages: int
    summary: str
    usage: Usage
    cost_usd: float | None
    type: Literal["compacted"] = "compacted"


@dataclass(frozen=True, slots=True)
class Retrying:
    """The request failed and will be sent again as a whole after `wait` seconds."""

    attempt: int
    wait: float
    reason: str
    type: Literal["retrying"] = "retrying"


@dataclass(frozen=True, slots=True)
class MessageDone:
    """The model's whole message."""

    message_id: str
    message: Message
    type: Literal["message_done"] = "message_done"


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """The person is asked."""

    request: ApprovalRequest
    type: Literal["approval_asked"] = "approval_asked"


@dataclass(frozen=True, slots=True)
class ApprovalGiven:
    """The person, or a rule in a front end without one, answered."""

    call_id: str
    decision: Decision
    type: Literal["approval_given"] = "approval_given"


@dataclass(frozen=True, slots=True)
class ToolRunning:
    """A call was allowed and runs. `title` is one line for people."""

    call: ToolCall
    title: str
    type: Literal["tool_running"] = "tool_running"


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """Output of a running tool as it arrives."""

    call_id: str
    text: str
    type: Literal["tool_progress"] = "tool_progress"


@dataclass(frozen=True, slots=True)
class ToolDone:
    """The one result of a call, also of a call that was refused, denied or interrupted."""

    call_id: str
    name: str
    output: ToolOutput
    seconds: float
    type: Literal["tool_done"] = "tool_done"


@dataclass(frozen=True, slots=True)
class MemoryChanged:
    """A tool committed to memory."""

    commit: MemoryCommitted
    type: Literal["memory_changed"] = "memory_changed"


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step is checkpointed: message and results are part of the conversation now."""

    step: int
    usage: Usage
    type: Literal["step_done"] = "step_done"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the person should know."""

    level: Literal["info", "warning"]
    text: str
    type: Literal["notice"] = "notice"


@dataclass(frozen=True, slots=True)
class TurnError:
    """Why a turn failed. `kind` is a `ModelErrorKind`, or "bug", or another short word."""

    kind: str
    message: str
    hint: str = ""
    retryable: bool = False
    exit_code: int = 1


TurnStatus = Literal["success", "error", "interrupted", "max_turns"]


@dataclass(frozen=True, slots=True)
class TurnDone:
    """The turn is over. `text` is the text of the last assistant message, empty when there is none;
    `partial` is what was shown of an answer that was never finished, when the turn failed on it or was
    interrupted in it."""

    status: TurnStatus
    text: str
    steps: int
    usage: Usage
    seconds: float
    cost_usd: float | None
    memory_revision: str
    error: TurnError | None = None
    partial: str = ""
    type: Literal["turn_done"] = "turn_done"


Event: TypeAlias = (
    TurnStarted
    | PromptReady
    | StepStarted
    | TextDelta
    | ThinkingDelta
    | ToolCallStarted
    | AnswerBroken
    | FallbackUsed
    | Compacted
    | Retrying
    | MessageDone
    | ApprovalAsked
    | ApprovalGiven
    | ToolRunning
    | ToolProgress
    | ToolDone
    | MemoryChanged
    | StepDone
    | Notice
    | TurnDone
)
