"""Where conversations are kept: making, finding, opening, listing and deleting them.

An open conversation is locked: two processes never append to one transcript.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from letta_code.conversations.history import VERSION, History, Pending, Sent, answer_record, input_record
from letta_code.conversations.transcript import Record, Transcript, parse_line, read_lines
from letta_code.core.codec import dump
from letta_code.core.ids import AgentKey, checked_id, new_conversation_id, new_message_id
from letta_code.core.messages import Message, PromptKey, ToolResult, Usage
from letta_code.core.text import one_line
from letta_code.errors import ConversationError, StorageError, UsageError
from letta_code.paths import Paths
from letta_code.storage import locked

_HEAD = 262_144  # bytes read to find the first input
_TAIL = 65_536  # bytes read to find the last turn; more only when it is not there


def now() -> str:
    """The time as transcripts write it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """What a list shows. Times are ISO 8601 in UTC; `title` is the start of the first input."""

    id: str
    key: AgentKey
    title: str
    created_at: str
    updated_at: str
    turns: int
    cwd: str


class Conversation:
    """One open conversation: its history, and the only way to add to it.

    Every method that writes raises `StorageError` when the disk refuses; what it would have recorded
    then does not count.
    """

    def __init__(self, key: AgentKey, history: History, transcript: Transcript, lock: ExitStack) -> None:
        self.key = key
        self.history = history
        self._transcript = transcript
        self._lock = lock
        self.recovered: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.history.header["id"])

    @property
    def cwd(self) -> str:
        """The folder it was started in."""
        return str(self.history.header.get("cwd", ""))

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages in order, memory updates included."""
        return self.history.messages

    @property
    def last_prompt(self) -> PromptKey | None:
        """The key of the prompt that the last committed step was sent."""
        return self.history.last_prompt

    @property
    def turns(self) -> int:
        """How many turns were started."""
        return self.history.turns

    def begin_turn(self, message: Message) -> str:
        """Record the person's input and start the next turn; returns the message's id."""
        self.recover()
        message_id = new_message_id()
        self._add(input_record(message_id, now(), self.turns + 1, message), sync=True)
        return message_id

    def set_extra(self, text: str) -> None:
        """Record what requests add to the system prompt from now on, when that changed."""
        if text != self.history.extra:
            self._add({"kind": "prompt", "text": text})

    def add_answer(self, step: int, message: Message | None, stop: str, usage: Usage, sent: Sent) -> str:
        """Record the model's whole answer before its tools run; returns the message's id."""
        message_id = new_message_id()
        self._add(answer_record(message_id, now(), self.turns, step, message, stop, usage, sent))
        return message_id

    def mark_started(self, call_id: str, tool: str) -> None:
        """Record, on the disk, that a tool with effects is about to run."""
        self._add({"kind": "started", "call_id": call_id, "tool": tool}, sync=True)

    def add_result(self, result: ToolResult) -> None:
        """Record the outcome of a call."""
        self._add({"kind": "result", "call_id": result.call_id, "result": dump(result)})

    def commit_step(self) -> None:
        """The checkpoint: the answer and its results become part of the conversation together."""
        pending = self.history.pending
        if pending is None:
            raise RuntimeError("there is no answer to commit")
        answer = pending.record
        self._add(
            {
                "kind": "step",
                "at": now(),
                "turn": answer["turn"],
                "step": answer["step"],
                "assistant": answer["id"],
                "results": new_message_id() if _has_calls(pending) else None,
            },
            sync=True,
        )

    def end_turn(self, status: str, error: str | None = None, *, dropped: bool = False) -> None:
        """Record how the turn ended. `dropped`: its input is not part of the conversation, because a
        request with it can never succeed."""
        self.recover()
        record = {"kind": "turn", "at": now(), "turn": self.turns, "status": status, "error": error}
        self._add(record | {"dropped": dropped}, sync=True)

    def recover(self) -> bool:
        """Commit an answer that a crash or a full disk left without its checkpoint; returns whether
        there was one. Calls that did not finish get a result that says so."""
        pending = self.history.pending
        if pending is None:
            return False
        for result in self.history.results_message(pending).blocks:
            if isinstance(result, ToolResult) and result.call_id not in pending.results:
                self.add_result(result)
        self.commit_step()
        return True

    def _add(self, record: Record, *, sync: bool = False) -> None:
        self._transcript.append(record, sync=sync)
        self.history.take(record)

    def close(self) -> None:
        """Close the file and free the lock. Safe to call twice."""
        self._transcript.close()
        self._lock.close()


def _has_calls(pending: Pending) -> bool:
    return pending.message is not None and bool(pending.message.tool_calls)


class ConversationStore:
    """All conversations of this person."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def create(self, key: AgentKey, cwd: Path) -> Conversation:
        """Start a new conversation of an agent, and hold it open."""
        conversation_id = new_conversation_id()
        path = self._paths.conversation(key, conversation_id)
        lock = self._lock(path, conversation_id)
        try:
            transcript = Transcript(path, None)
            conversation = Conversation(key, History(), transcript, lock)
            header = {"kind": "conversation", "v": VERSION, "id": conversation_id, "org": key.org}
            conversation._add(header | {"agent": key.agent, "created_at": now(), "cwd": str(cwd)}, sync=True)
        except BaseException:
            lock.close()
            raise
        return conversation

    def open(self, key: AgentKey, conversation_id: str) -> Conversation:
        """Open a conversation to go on with it: repaired, and with an unfinished step recovered.
        `recovered` says what was found.

        Raises:
            ConversationError: it is missing, unreadable, or open in another process.
        """
        path = self._paths.conversation(key, conversation_id)
        if not path.exists():
            raise ConversationError(
                f"there is no conversation {conversation_id}", "`letta conversations list` shows them"
            )
        lock = self._lock(path, conversation_id)
        try:
            return self._opened(key, conversation_id, path, lock)
        except BaseException:
            lock.close()
            raise

    def _opened(self, key: AgentKey, conversation_id: str, path: Path, lock: ExitStack) -> Conversation:
        lines = read_lines(path)
        history = _folded(lines.records(), key, conversation_id)
        notes = [*lines.problems, *history.problems]
        conversation = Conversation(key, history, Transcript(path, lines), lock)
        if lines.torn:
            notes.append("the last line of the transcript was torn (a crash or a full disk) and was cut off")
        pending = history.pending
        unknown = len(pending.started - set(pending.results)) if pending is not None else 0
        if conversation.recover():
            notes.append(
                "the last step was interrupted; "
                + (
                    f"the outcome of {unknown} operation(s) is unknown"
                    if unknown
                    else "what finished was kept"
                )
            )
        conversation.recovered = tuple(notes)
        return conversation

    def _lock(self, path: Path, conversation_id: str) -> ExitStack:
        stack = ExitStack()
        try:
            stack.enter_context(locked(path.with_suffix(".lock"), 0, f"{conversation_id} is in use"))
        except StorageError as error:
            if not error.message.endswith("is in use"):
                raise
            raise ConversationError(
                f"the conversation {conversation_id} is open in another process",
                "close it there, or start a new one with --new",
            ) from error
        return stack

    def read(self, conversation_id: str, key: AgentKey | None = None) -> History:
        """A conversation to look at, also while another process has it open: no lock and no repair."""
        if key is None:
            key = self.find(conversation_id).key
        lines = read_lines(self._paths.conversation(key, conversation_id))
        history = _folded(lines.records(), key, conversation_id)
        history.problems[:0] = lines.problems
        return history

    def find(self, wanted: str) -> ConversationSummary:
        """The conversation with this id, or whose id begins so (with or without `conv-`).

        Raises:
            ConversationError: there is none, or more than one.
        """
        prefix = wanted if wanted.startswith("conv-") else f"conv-{wanted}"
        found = [path for path in self._files(None) if path.stem.startswith(prefix)]
        exact = [path for path in found if path.stem == prefix]
        summaries = [item for item in map(_summary, exact or found) if item is not None]
        if len(summaries) == 1:
            return summaries[0]
        if summaries:
            names = ", ".join(item.id for item in summaries[:5])
            raise ConversationError(f"{wanted} fits {len(summaries)} conversations", f"one of {names}")
        raise ConversationError(f"there is no conversation {wanted}", "`letta conversations list` shows them")

    def list(self, key: AgentKey | None = None) -> tuple[ConversationSummary, ...]:
        """All conversations, of one agent when `key` is given, the last used first. Files that are not
        conversations are left out."""
        found = [item for item in map(_summary, self._files(key)) if item is not None]
        return tuple(sorted(found, key=lambda item: (item.updated_at, item.id), reverse=True))

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation.

        Raises:
            ConversationError: it is missing, or open in another process.
        """
        summary = self.find(conversation_id)
        path = self._paths.conversation(summary.key, summary.id)
        with self._lock(path, summary.id):
            try:
                path.unlink()
                path.with_suffix(".lock").unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(f"cannot delete {path}: {error.strerror}") from error

    def _files(self, key: AgentKey | None) -> tuple[Path, ...]:
        if key is not None:
            return tuple(self._paths.conversations(key).glob("conv-*.jsonl"))
        return tuple(self._paths.all_conversations().glob("org-*/agent-*/conv-*.jsonl"))


def _folded(records: Iterable[Record], key: AgentKey, conversation_id: str) -> History:
    history = History()
    for record in records:
        history.apply(record)
    version = history.header.get("v", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise ConversationError(
            f"the conversation {conversation_id} was written by a newer version", "update Letta Code"
        )
    # The header may be damaged; the path says the same.
    history.header = {"id": conversation_id, "org": key.org, "agent": key.agent} | history.header
    return history


def _summary(path: Path) -> ConversationSummary | None:
    try:
        key = AgentKey(path.parent.parent.name, path.parent.name)
        conversation_id = checked_id(path.stem, "conv")
        with path.open("rb") as file:
            head = _records(file.read(_HEAD))
            size = file.seek(0, 2)
            last: Record = {}
            window = _TAIL
            while True:
                file.seek(max(0, size - window))
                tail = _records(file.read(window))
                last = next((record for record in reversed(tail) if isinstance(record.get("turn"), int)), {})
                if last or window >= size:
                    break
                window *= 4
    except (OSError, UsageError):
        return None
    header = next((record for record in head if record["kind"] == "conversation"), {})
    created = str(header.get("created_at", ""))
    return ConversationSummary(
        conversation_id,
        key,
        _title(head),
        created,
        str(last.get("at", created)),
        int(last.get("turn", 0)),
        str(header.get("cwd", "")),
    )


def _records(data: bytes) -> list[Record]:
    return [record for line in data.split(b"\n") if (record := parse_line(line)) is not None]


def _title(head: list[Record]) -> str:
    first = next((record for record in head if record["kind"] == "input"), None)
    if first is None:
        return ""
    message = first.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("blocks"), list):
        return ""
    skip = message.get("reminder") if isinstance(message.get("reminder"), int) else 0
    words = [block.get("text") for block in message["blocks"][skip:] if isinstance(block, dict)]
    return one_line(" ".join(word for word in words if isinstance(word, str)), 80)
