"""Conversations to search in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from letta_code.conversations.history import Sent, input_record
from letta_code.conversations.store import Conversation, ConversationStore
from letta_code.conversations.transcript import encoded
from letta_code.core.ids import DEFAULT_ORG, AgentKey, new_conversation_id
from letta_code.core.messages import Message, PromptKey, Text, ToolCall, ToolResult, Usage
from letta_code.core.query import parse
from letta_code.paths import Paths
from letta_code.recall.recall import Recall
from letta_code.recall.search import Found, Wanted

KEY = AgentKey(DEFAULT_ORG, "agent-1")
OTHER = AgentKey(DEFAULT_ORG, "agent-2")
SENT = Sent(PromptKey("b", "r", "r"), "test/model", "0" * 64)


@dataclass(slots=True)
class Memories:
    """A home with conversations, and searches in it. `notes` is what the person was told."""

    home: Path
    paths: Paths
    notes: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, home: Path) -> Memories:
        return cls(home, Paths.from_environment({"LETTA_HOME": str(home)}))

    @property
    def store(self) -> ConversationStore:
        return ConversationStore(self.paths)

    @property
    def recall(self) -> Recall:
        return Recall(self.paths, self.notes.append)

    def begin(self, key: AgentKey = KEY) -> Conversation:
        return self.store.create(key, self.home)

    def told(self, *words: str, key: AgentKey = KEY) -> Conversation:
        """A closed conversation in which the person said these things and each was answered by "noted"."""
        conversation = self.begin(key)
        for said in words:
            turn(conversation, said)
        conversation.close()
        return conversation

    def search(self, query: str, **narrowed: object) -> Found:
        return self.recall.search(Wanted(parse(query), **narrowed))  # type: ignore[arg-type]

    def texts(self, query: str, **narrowed: object) -> list[str]:
        """What the messages say that have all of the query."""
        found = self.search(query, **narrowed)
        return [hit.entry.message.text for hit in found.hits if hit.whole]

    def many(self, count: int, text: str = "message number") -> str:
        """A transcript of `count` inputs, written at once; returns the conversation's id."""
        conversation = new_conversation_id()
        path = self.paths.conversation(KEY, conversation)
        path.parent.mkdir(parents=True, exist_ok=True)
        header = {"kind": "conversation", "v": 1, "id": conversation, "org": KEY.org, "agent": KEY.agent}
        inputs = (
            input_record(
                f"message-{conversation}-{number}",
                "2026-01-01T00:00:00.000+00:00",
                number,
                said(f"{text} {number}"),
            )
            for number in range(count)
        )
        path.write_bytes(b"".join(map(encoded, [header, *inputs])))
        return conversation


def said(text: str) -> Message:
    return Message("user", (Text(text),))


def turn(
    conversation: Conversation, words: str, answer: str = "noted", calls: Sequence[tuple[ToolCall, str]] = ()
) -> None:
    conversation.begin_turn(said(words))
    if calls:
        asked = Message("assistant", tuple(call for call, _ in calls))
        conversation.add_answer(1, asked, "tool_use", Usage(), SENT)
        for call, result in calls:
            conversation.add_result(ToolResult(call.id, (Text(result),)))
        conversation.commit_step()
    conversation.add_answer(2, Message("assistant", (Text(answer),)), "end_turn", Usage(), SENT)
    conversation.commit_step()
    conversation.end_turn("success")
