"""Where conversations are kept: making, finding, opening, listing and deleting them.

An open conversation is locked: two processes never append to one transcript.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from letta_code.conversations.compaction import Compaction, compaction_record
from letta_code.conversations.fork import copied, running_turn
from letta_code.conversations.history import (
    VERSION,
    History,
    Pending,
    Sent,
    Unfinished,
    answer_record,
    input_record,
)
from letta_code.conversations.spending import Spending, spending_of
from letta_code.conversations.summary import ConversationSummary, origin_of, summary_of
from letta_code.conversations.transcript import Lines, Record, Transcript, encoded, read_lines
from letta_code.core.codec import dump
from letta_code.core.ids import AgentKey, new_conversation_id, new_message_id
from letta_code.core.messages import Message, PromptKey, ToolResult, Usage
from letta_code.core.text import one_line
from letta_code.errors import ConversationError, StorageError
from letta_code.paths import Paths
from letta_code.storage import locked, write_atomically


def now() -> str:
    """The time as transcripts write it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Conversation:
    """One open conversation: its history, and the only way to add to it. `recovered` says what was repaired
    when it was opened, one line each; `interrupted` is the last turn when a crash ended it.

    Every method that writes raises `StorageError` when the disk refuses; what it would have recorded
    then does not count.
    """

    def __init__(self, key: AgentKey, history: History, transcript: Transcript, lock: ExitStack) -> None:
        self.key = key
        self.history = history
        self._transcript = transcript
        self._lock = lock
        self.recovered: tuple[str, ...] = ()
        self.interrupted: Unfinished | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.history.header["id"])

    @property
    def cwd(self) -> str:
        """The folder it was started in."""
        return str(self.history.header.get("cwd", ""))

    @property
    def forked_from(self) -> str:
        """The id of the conversation that this one began as a copy of, or ""."""
        return origin_of(self.history.header)

    @property
    def running_elsewhere(self) -> bool:
        """Whether the unfinished turn was copied from a conversation that another process had open."""
        turn = self.history.unfinished
        return turn is not None and turn.turn == running_turn(self.history.header)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages in order, memory updates included."""
        return self.history.messages

    @property
    def pointer(self) -> str:
        """`conversation:message` of the answer whose calls run, "" when none do."""
        pending = self.history.pending
        return "" if pending is None else f"{self.id}:{pending.record['id']}"

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

    def add_partial(self, step: int, model: str, text: str, thinking: str, reason: str) -> None:
        """Record what the person saw of an answer that broke off; no request carries it."""
        record = {"kind": "partial", "at": now(), "turn": self.turns, "step": step, "model": model}
        self._add(record | {"text": text, "thinking": thinking, "reason": reason})

    def add_spent(self, model: str, usage: Usage) -> None:
        """Record what an answer of `model` took that was for a summary and is none."""
        self._add({"kind": "spent", "at": now(), "turn": self.turns, "model": model, "usage": dump(usage)})

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

    def end_turn(
        self,
        status: str,
        error: str | None = None,
        *,
        dropped: bool = False,
        discarded: Sequence[tuple[str, Usage]] = (),
    ) -> None:
        """Record how the turn ended. `dropped`: its input is not part of the conversation, because a
        request with it can never succeed. `discarded` is what answers took (model, usage) that were no part
        of the conversation."""
        self.recover()
        record = {"kind": "turn", "at": now(), "turn": self.turns, "status": status, "error": error}
        taken = [{"model": model, "usage": dump(usage)} for model, usage in discarded]
        more = {"discarded": taken} if taken else {}
        self._add(record | {"dropped": dropped} | more, sync=True)

    def undo(self, turns: Sequence[int], note: str) -> None:
        """Record that files were changed back. The messages of `turns` are no longer part of the
        conversation; `note` is what the next input tells the model, when it is not empty."""
        self.recover()
        record = {"kind": "undo", "at": now(), "turn": self.turns, "turns": list(turns), "note": note}
        self._add(record, sync=True)

    def compact(self, compaction: Compaction) -> None:
        """Record a compaction: the next request carries less of the conversation."""
        self.recover()
        self._add(compaction_record(compaction), sync=True)

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
            conversation._add(_header(key, conversation_id, str(cwd)), sync=True)
        except BaseException:
            lock.close()
            raise
        return conversation

    def fork(self, key: AgentKey, conversation_id: str, cwd: Path) -> Conversation:
        """Start a conversation with a copy of another one's records up to its last checkpoint, and hold it
        open. The other is left as it is, and may be open in another process.

        Raises:
            ConversationError: the other is missing or unreadable.
        """
        source = self._existing(key, conversation_id)
        with ExitStack() as held:
            running = False
            try:
                held.enter_context(self._lock(source, conversation_id))
            except ConversationError:
                running = True
            lines = read_lines(source)
            records = list(lines.records())
        _check_version(records, conversation_id)
        new = new_conversation_id()
        header = _header(key, new, str(cwd))
        copy = copied(records, header, conversation_id, running=running)
        path = self._paths.conversation(key, new)
        lock = self._lock(path, new)
        try:
            write_atomically(path, b"".join(map(encoded, copy)))
            conversation = self._opened(key, new, path, lock)
        except BaseException:
            lock.close()
            raise
        conversation.recovered = (*lines.problems, *conversation.recovered)
        return conversation

    def open(self, key: AgentKey, conversation_id: str) -> Conversation:
        """Open a conversation to go on with it: repaired, and with an unfinished step recovered.
        `recovered` says what was found.

        Raises:
            ConversationError: it is missing, unreadable, or open in another process.
        """
        path = self._existing(key, conversation_id)
        lock = self._lock(path, conversation_id)
        try:
            return self._opened(key, conversation_id, path, lock)
        except BaseException:
            lock.close()
            raise

    def _existing(self, key: AgentKey, conversation_id: str) -> Path:
        path = self._paths.conversation(key, conversation_id)
        if not path.exists():
            raise ConversationError(
                f"there is no conversation {conversation_id}", "`letta conversations list` shows them"
            )
        return path

    def _opened(self, key: AgentKey, conversation_id: str, path: Path, lock: ExitStack) -> Conversation:
        lines = read_lines(path)
        history = _folded(lines.records(), key, conversation_id)
        notes = [*lines.problems, *history.problems]
        nothing = "kind" not in history.header and next(lines.records(), None) is None
        if empty := nothing and _is_empty(lines):
            history = History()
            notes = ["the transcript was empty: if there was something in it, it is lost"]
        elif nothing:
            raise ConversationError(
                f"nothing in the conversation {path} can be read",
                "restore that file from a backup, or start a new conversation: letta --new",
            )
        conversation = Conversation(key, history, Transcript(path, lines), lock)
        if empty:
            conversation._add(_header(key, conversation_id, ""), sync=True)
        elif lines.torn:
            notes.append("the last line of the transcript was torn (a crash or a full disk) and was cut off")
        unfinished = history.unfinished
        conversation.recover()
        if history.unfinished is not None:  # a last answer may have lacked its checkpoint only
            conversation.interrupted = unfinished
        if conversation.interrupted is not None:
            notes.append(_interruption(conversation.interrupted, history.header))
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
                "close it there, go on with a copy of it (--fork), or start a new one (--new)",
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

    def spending(self, key: AgentKey, conversation_id: str, since: datetime | None = None) -> Spending:
        """What the requests of a conversation took, from `since` (UTC) on."""
        lines = read_lines(self._paths.conversation(key, conversation_id))
        return spending_of(lines.records(), "" if since is None else since.isoformat(timespec="milliseconds"))

    def find(self, wanted: str, key: AgentKey | None = None) -> ConversationSummary:
        """The conversation with this id, or whose id begins so (with or without `conv-`); only among those
        of one agent when `key` is given.

        Raises:
            ConversationError: there is none, or more than one.
        """
        prefix = wanted if wanted.startswith("conv-") else f"conv-{wanted}"
        found = [path for path in self._files(key) if path.stem.startswith(prefix)]
        exact = [path for path in found if path.stem == prefix]
        summaries = [item for item in map(summary_of, exact or found) if item is not None]
        if len(summaries) == 1:
            return summaries[0]
        if summaries:
            names = ", ".join(item.id for item in summaries[:5])
            raise ConversationError(f"{wanted} fits {len(summaries)} conversations", f"one of {names}")
        raise ConversationError(f"there is no conversation {wanted}", "`letta conversations list` shows them")

    def list(self, key: AgentKey | None = None) -> tuple[ConversationSummary, ...]:
        """All conversations, of one agent when `key` is given, the last used first. Files that are not
        conversations are left out."""
        found = [item for item in map(summary_of, self._files(key)) if item is not None]
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
                if (kept := self._paths.undo(summary.key, summary.id)).exists():
                    shutil.rmtree(kept)
            except OSError as error:
                raise StorageError(f"cannot delete {path}: {error.strerror}") from error

    def _files(self, key: AgentKey | None) -> tuple[Path, ...]:
        if key is not None:
            return tuple(self._paths.conversations(key).glob("conv-*.jsonl"))
        return tuple(self._paths.all_conversations().glob("org-*/agent-*/conv-*.jsonl"))


def _header(key: AgentKey, conversation_id: str, cwd: str) -> Record:
    return {
        "kind": "conversation",
        "v": VERSION,
        "id": conversation_id,
        "org": key.org,
        "agent": key.agent,
        "created_at": now(),
        "cwd": cwd,
    }


def _is_empty(lines: Lines) -> bool:
    """Whether nothing was ever recorded, or a power failure left only NULs of it."""
    start = lines.data.lstrip(b"\0\n")
    header = b'{"kind":"conversation"'
    return (lines.sound == 0 and start[: len(header)] == header[: len(start)]) or not start


def _interruption(turn: Unfinished, header: Record) -> str:
    """What the person is told of a turn that was not finished."""
    which = f"turn {turn.turn} ({one_line(turn.asked, 60)})" if turn.asked else f"turn {turn.turn}"
    after = f"after {turn.steps} step{'' if turn.steps == 1 else 's'}"
    if turn.turn == running_turn(header):
        return f"{which} was copied {after}; the original may go on with it"
    if not turn.unknown:
        return f"{which} was interrupted {after}; what was finished is kept"
    calls = "; ".join(f"{call.name} {one_line(str(dict(call.arguments or {})), 80)}" for call in turn.unknown)
    return f"{which} was interrupted {after}; it is not known whether this was done: {calls}"


def _folded(records: Iterable[Record], key: AgentKey, conversation_id: str) -> History:
    history = History()
    for record in records:
        history.apply(record)
    _check_version([history.header], conversation_id)
    # The header may be damaged; the path says the same.
    history.header = {"id": conversation_id, "org": key.org, "agent": key.agent} | history.header
    return history


def _check_version(records: Iterable[Record], conversation_id: str) -> None:
    version = next((record["v"] for record in records if "v" in record), VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise ConversationError(
            f"the conversation {conversation_id} was written by a newer version", "update Letta Code"
        )
