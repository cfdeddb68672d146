"""What a transcript's records mean: the fold from records to a conversation, and the records themselves.

::

    conversation  v, id, org, agent, created_at, cwd, forked_from{id, running}
                                                                  always the first; a copy says of what, and
                                                                  which turn was running there or null
    prompt        text                                            what the request adds to the system prompt
    input         id, at, turn, message                           the person's words, written at once
    assistant     id, at, turn, step, message|null, stop, usage,  the model's whole answer, and what it was
                  sent{prompt, model, system_sha256, update,      sent; written before its tools run
                  instead_of}
    partial       at, turn, step, model, text, thinking, reason   what was shown of an answer that broke off:
                                                                  for the person, never for a model
    started       call_id, tool                                   a tool with effects is about to run
    result        call_id, result                                 its outcome
    step          at, turn, step, assistant, results              the commit: answer, results and memory
                                                                  update are part of the conversation now
    turn          at, turn, status, error, dropped,               the turn is over; what answers took that
                  discarded[{model, usage}] where there are any   are no part of the conversation
    compaction    id, at, turn, trigger, mode, summary|null,      requests carry `summary` in the place of
                  first, words, shortened, before, after, usage,  what is before the entry `first`, and
                  model, revision                                 shorter results: `conversations.compaction`
    spent         at, turn, model, usage                          what an answer took that was no summary
    undo          at, turn, turns, note                           files were changed back; the messages of
                                                                  `turns` are not part of it any more, and
                                                                  the next input tells the model `note`
    repair        cut                                             a torn line was cut off here

What has no `step` record is not part of the conversation, except the person's input, which is part of it
unless its turn says `dropped`. So every prefix of the file is a conversation that any provider takes.
Pure: reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from letta_code.conversations.compaction import Compaction, Sight, load_compaction
from letta_code.conversations.transcript import Record
from letta_code.core.codec import dump, load_message, load_result
from letta_code.core.messages import Message, PromptKey, Text, ToolCall, ToolResult, Usage

VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a conversation, with its identity, time (ISO 8601, UTC) and turn."""

    id: str
    at: str
    turn: int
    message: Message


@dataclass(frozen=True, slots=True)
class Update:
    """A memory update that was sent as a message inside the conversation."""

    id: str
    message: Message


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request carried: the prompt's key, the model's handle, the sha256 of the system prompt as
    sent, and the memory update that was new with it. `instead_of` is the model that the person chose
    where a fallback answered for it, "" else."""

    prompt: PromptKey
    model: str
    system_sha256: str
    update: Update | None = None
    instead_of: str = ""

    @property
    def chosen(self) -> str:
        """The handle of the model that the person chose."""
        return self.instead_of or self.model


@dataclass(frozen=True, slots=True)
class Partial:
    """What was shown of an answer that broke off. `before` is the index in `History.entries` that it
    would have had; `reason` is one line."""

    at: str
    turn: int
    step: int
    model: str
    text: str
    thinking: str
    reason: str
    before: int


@dataclass(frozen=True, slots=True)
class Step:
    """One committed step. `extra` is what the request added to the compiled prompt (skills)."""

    turn: int
    step: int
    at: str
    sent: Sent
    stop: str
    usage: Usage
    extra: str
    messages: int
    """How many messages of the conversation the request carried."""


@dataclass(slots=True)
class Pending:
    """An answer that has no `step` record yet, and what is known of its calls."""

    record: Record
    message: Message | None
    sent: Sent
    started: set[str] = field(default_factory=set)
    results: dict[str, ToolResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A turn that has no end on record: the program died in it. `asked` is the person's input, `steps` how
    many steps were committed, `unknown` the calls that were started and have no result."""

    turn: int
    asked: str
    steps: int
    unknown: tuple[ToolCall, ...] = ()


class History:
    """A conversation as its records tell it. `apply` takes them in order; a record that cannot be
    understood is left out and becomes one of `problems`."""

    def __init__(self) -> None:
        self.header: Record = {}
        self.entries: list[Entry] = []
        self.steps: list[Step] = []
        self.partials: list[Partial] = []
        self.turns = 0
        self.extra = ""
        self.pending: Pending | None = None
        self.problems: list[str] = []
        self.compactions: list[Compaction] = []
        """All of them, also those that an undo took back."""
        self.news: list[str] = []
        """What an undo did, as far as no input has told the model."""
        self.told: dict[int, list[str]] = {}
        """Turn → the news that its input told."""
        self._gone: dict[int, int] = {}  # turn without messages → the turn after which an undo took them
        self._inputs: dict[int, int] = {}  # turn → index of its input in `entries`
        self._ends: dict[int, str] = {}  # turn → how it ended
        self._sights = [Sight()]  # what is in sight since each compaction that holds

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages in order, memory updates included."""
        return tuple(entry.message for entry in self.entries)

    @property
    def visible(self) -> list[Entry]:
        """The entries that requests carry: all, or since a compaction its summary and what it kept."""
        return self._sights[-1].of(self.entries)

    @property
    def compacted(self) -> bool:
        """Whether the conversation was compacted since its last step."""
        return len(self._sights) > 1 and not self.steps_since_compaction

    @property
    def steps_since_compaction(self) -> list[Step]:
        """The present steps that were made since the last compaction."""
        return [step for step in self.steps[self._sights[-1].steps :] if step.turn not in self._gone]

    @property
    def last_prompt(self) -> PromptKey | None:
        """The key of the prompt that was sent with the last step whose messages are part of this."""
        steps = self.present_steps
        return steps[-1].sent.prompt if steps else None

    @property
    def present_steps(self) -> list[Step]:
        """The steps whose messages are part of the conversation: no undo has taken them away."""
        return [step for step in self.steps if step.turn not in self._gone] if self._gone else self.steps

    def steps_until(self, last: Step) -> list[Step]:
        """The steps whose messages were part of the conversation when `last` was made, and `last`."""
        steps = self.steps[: self.steps.index(last) + 1]
        return [step for step in steps if self._gone.get(step.turn, last.turn) >= last.turn]

    @property
    def interrupted(self) -> bool:
        """Whether the last turn of the conversation was interrupted, and its end is on record."""
        turn = self._last_turn
        return turn is not None and self._ends.get(turn) == "interrupted"

    @property
    def unfinished(self) -> Unfinished | None:
        """The last turn of the conversation, when its end is not on record."""
        turn = self._last_turn
        if turn is None or turn in self._ends:
            return None
        index = self._inputs.get(turn)
        asked = "" if index is None else self.entries[index].message.text
        steps = sum(step.turn == turn for step in self.steps)
        pending = self.pending
        calls = pending.message.tool_calls if pending is not None and pending.message is not None else ()
        unknown = [
            call
            for call in calls
            if pending is not None and call.id in pending.started and call.id not in pending.results
        ]
        return Unfinished(turn, asked, steps, tuple(unknown))

    @property
    def _last_turn(self) -> int | None:
        if self.pending is not None:
            return int(self.pending.record["turn"])
        return self.entries[-1].turn if self.entries else None

    def apply(self, record: Record) -> None:
        """Take the next record, or note that it makes no sense."""
        try:
            self.take(record)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            self.problems.append(f"a damaged {record.get('kind')!r} record was left out")

    def take(self, record: Record) -> None:
        """Take the next record; raises one of the errors of wrong values when it makes no sense."""
        match record["kind"]:
            case "step":
                self._commit(record)
            case "assistant":
                message = None if record["message"] is None else load_message(record["message"])
                sent = _sent(record["sent"])
                self.turns = max(self.turns, int(record["turn"]))
                self.pending = Pending(record, message, sent)
            case "started":
                if self.pending is not None:
                    self.pending.started.add(record["call_id"])
            case "result":
                result = load_result(record["result"])
                if self.pending is not None:
                    self.pending.results[result.call_id] = result
            case "input":
                entry = Entry(
                    record["id"], record["at"], int(record["turn"]), load_message(record["message"])
                )
                self.turns = max(self.turns, entry.turn)
                self.pending = None
                self.told[entry.turn], self.news = self.news, []
                self._inputs[entry.turn] = len(self.entries)
                self.entries.append(entry)
            case "turn":
                self._end(record)
            case "partial":
                self.partials.append(_partial(record, len(self.entries)))
            case "undo":
                self._undo(record)
            case "compaction":
                self._compact(load_compaction(record))
            case "prompt":
                self.extra = str(record["text"])
            case "conversation":
                self.header = self.header or record
            case "repair" | "spent":
                pass
            case other:
                self.problems.append(f"an unknown record {str(other)[:40]!r} was left out")

    def _commit(self, record: Record) -> None:
        pending = self.pending
        if pending is None or pending.record["id"] != record["assistant"]:
            raise ValueError("the answer of this step is missing")
        self.pending = None
        answer = pending.record
        turn, at, sent = int(answer["turn"]), str(record["at"]), pending.sent
        if sent.update is not None:
            self.entries.append(Entry(sent.update.id, at, turn, sent.update.message))
        carried = len(self.entries)
        self._ends[turn] = "success"  # an answer that calls nothing is the turn's last
        if pending.message is not None:
            self.entries.append(Entry(answer["id"], str(answer["at"]), turn, pending.message))
            if pending.message.tool_calls:
                self._ends.pop(turn, None)
                self.entries.append(Entry(record["results"], at, turn, self.results_message(pending)))
        usage = Usage(**answer["usage"])
        step = Step(turn, int(answer["step"]), at, sent, str(answer["stop"]), usage, self.extra, carried)
        self.steps.append(step)

    def results_message(self, pending: Pending) -> Message:
        """The one tool message that answers all calls of `pending`, in call order. A call whose result
        is not recorded gets one that says what is known."""
        calls = pending.message.tool_calls if pending.message is not None else ()
        return Message("tool", tuple(_result(pending, call.id) for call in calls), "harness")

    def _end(self, record: Record) -> None:
        turn, status = int(record["turn"]), str(record["status"])
        self.turns = max(self.turns, turn)
        self.pending = None
        self._ends[turn] = status
        index = self._inputs.get(turn)
        if record.get("dropped") and index is not None and index == len(self.entries) - 1:
            del self.entries[index]
            self.news[:0] = self.told.pop(turn, [])
            self.partials = [replace(item, before=min(item.before, index)) for item in self.partials]
            self._sights = [sight.moved(range(index)) for sight in self._sights]

    def _undo(self, record: Record) -> None:
        turns, note = {int(turn) for turn in record["turns"]}, str(record["note"])
        self.turns = max(self.turns, int(record["turn"]))
        self._gone |= {turn: self.turns for turn in turns if turn not in self._gone}
        for turn in sorted(turns, reverse=True):
            self.news[:0] = self.told.pop(turn, [])
        if note:
            self.news.append(note)
        if turns:
            self.pending = None
            kept = [index for index, entry in enumerate(self.entries) if entry.turn not in turns]
            place = {index: place for place, index in enumerate(kept)}
            self._inputs = {turn: place[at] for turn, at in self._inputs.items() if at in place}
            self.partials = [
                replace(item, before=sum(index < item.before for index in kept))
                for item in self.partials
                if item.turn not in turns
            ]
            self.entries = [self.entries[index] for index in kept]
            # A summary of what is gone goes with it, and the one before holds again.
            oldest = min(turns)
            self._sights[1:] = [sight.moved(kept) for sight in self._sights[1:] if sight.covered < oldest]

    def _compact(self, compaction: Compaction) -> None:
        summary = compaction.summary
        entry = None if summary is None else Entry(compaction.id, compaction.at, compaction.turn, summary)
        sight = self._sights[-1].then(compaction, self.entries, len(self.steps), entry)
        self.turns = max(self.turns, compaction.turn)
        self._sights.append(sight)
        self.compactions.append(compaction)


def _result(pending: Pending, call_id: str) -> ToolResult:
    if (result := pending.results.get(call_id)) is not None:
        return result
    if call_id in pending.started:
        words = (
            "The program was stopped while this ran: its outcome is unknown. It may have happened wholly, "
            "partly or not at all. Check before repeating it."
        )
        return ToolResult(call_id, (Text(words),), "unknown")
    return ToolResult(call_id, (Text("Interrupted before it ran; nothing was done."),), "interrupted")


def _partial(record: Record, before: int) -> Partial:
    words = {name: str(record[name]) for name in ("at", "model", "text", "thinking", "reason")}
    return Partial(turn=int(record["turn"]), step=int(record["step"]), before=before, **words)


def _sent(data: Mapping[str, Any]) -> Sent:
    update = data["update"]
    return Sent(
        PromptKey(**data["prompt"]),
        str(data["model"]),
        str(data["system_sha256"]),
        None if update is None else Update(str(update["id"]), load_message(update["message"])),
        str(data.get("instead_of", "")),
    )


def input_record(id: str, at: str, turn: int, message: Message) -> Record:
    """The person's words."""
    return {"kind": "input", "id": id, "at": at, "turn": turn, "message": dump(message)}


def answer_record(
    id: str, at: str, turn: int, step: int, message: Message | None, stop: str, usage: Usage, sent: Sent
) -> Record:
    """The model's whole answer; `message` is None when it said nothing."""
    return {
        "kind": "assistant",
        "id": id,
        "at": at,
        "turn": turn,
        "step": step,
        "message": dump(message),
        "stop": stop,
        "usage": dump(usage),
        "sent": dump(sent),
    }
