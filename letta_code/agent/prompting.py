"""Which prompt a request carries: the three-way table, and its execution.

========= ======== ============================================ ==========
base hash revision                                              what happens
========= ======== ============================================ ==========
same      same                                                  `stored`
same      moved    the model takes system messages inside       `update`
otherwise                                                       `compiled`
========= ======== ============================================ ==========

Nothing is recorded here: the key and the update become part of the conversation with the step that
carried them, so a failed request loses nothing. `requested` compiles anew what would no longer fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from letta_code.agent.counting import Counter, answer_room
from letta_code.conversations.history import History
from letta_code.core.messages import Message, PromptKey, Text
from letta_code.errors import MemoryStoreError
from letta_code.models.base import ModelInfo, ModelRequest

if TYPE_CHECKING:
    from letta_code.agent.session import Session
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.prompt import CompiledPrompt, PromptCache

How = Literal["stored", "compiled", "update"]

_UPDATES = 0.1
"""Share of the window that memory updates may take: what compiling anew costs is little beside them then."""


def decide(last: PromptKey | None, base: str, head: str, system_messages: bool) -> How:
    """The three-way table. `last` is the key of the last committed step, `base` the hash of the base
    prompt now, `head` memory's commit now."""
    if last is None or last.base != base:
        return "compiled"
    if last.revision != last.seen and not system_messages:
        return "compiled"  # the model was changed: it can't be sent the updates that lie between
    if last.seen == head:
        return "stored"
    return "update" if system_messages else "compiled"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request's prompt. `update` is new with this request; `warning` is one line for the person."""

    system: str
    key: PromptKey
    how: How
    update: Message | None = None
    problems: tuple[str, ...] = ()
    warning: str = ""


class Prompts:
    """Prepares the prompt of each request of a session."""

    def __init__(self, cache: PromptCache, repository: MemoryRepository, base: str) -> None:
        from letta_code.memory.prompt import base_hash

        self._cache = cache
        self._repository = repository
        self.base = base
        """The base prompt that requests are compiled from."""
        self._hash = base_hash(base)

    def prepare(self, last: PromptKey | None, system_messages: bool, *, compacted: bool = False) -> Prepared:
        """The prompt of the next request; compiled anew when the conversation was `compacted`, since the
        prefix is another one anyway and memory updates that were sent before are out of sight.

        Raises:
            MemoryStoreError: memory cannot be read, and no prompt that worked is cached.
        """
        try:
            head = self._repository.head()
            prepared = self._prepare(None if compacted else last, head, system_messages)
            return replace(prepared, warning=self._repository.unfinished())
        except MemoryStoreError as error:
            if last is None or last.base != self._hash:
                raise
            compiled = self._compile(last.revision)
            warning = f"memory cannot be read ({error.message}); the last good prompt is used"
            return Prepared(compiled.text, last, "stored", None, _sentences(compiled), warning)

    def _prepare(self, last: PromptKey | None, head: str, system_messages: bool) -> Prepared:
        how = decide(last, self._hash, head, system_messages)
        if last is not None and how != "compiled":
            try:
                return self._kept(last, head, how)
            except MemoryStoreError:
                pass  # the revision it was compiled from is gone from the repository
        compiled = self._compile(head)
        key = PromptKey(self._hash, head, head)
        return Prepared(compiled.text, key, "compiled", None, _sentences(compiled))

    def _kept(self, last: PromptKey, head: str, how: How) -> Prepared:
        compiled = self._compile(last.revision)
        if how == "stored":
            return Prepared(compiled.text, last, "stored", None, _sentences(compiled))
        from letta_code.memory.render import render_update

        text = render_update(self._repository.snapshot(last.seen), self._repository.snapshot(head))
        key = replace(last, seen=head)
        if not text:
            return Prepared(compiled.text, key, "stored", None, _sentences(compiled))
        update = Message("system", (Text(text),), "harness")
        return Prepared(compiled.text, key, "update", update, _sentences(compiled))

    def _compile(self, revision: str) -> CompiledPrompt:
        return self._cache.get(self.base, self._repository, revision)


def visible_messages(history: History, key: PromptKey) -> tuple[Message, ...]:
    """The conversation as a request with the prompt `key` sends it: what is in sight since a compaction,
    without the memory updates that were sent under an older system prompt, since what they say is older than
    `key`."""
    current = set()
    for step in reversed(history.steps_since_compaction):
        if (step.sent.prompt.base, step.sent.prompt.revision) != (key.base, key.revision):
            break
        if step.sent.update is not None:
            current.add(step.sent.update.id)
    return tuple(
        entry.message for entry in history.visible if entry.message.role != "system" or entry.id in current
    )


def next_request(session: Session, info: ModelInfo, *, fresh: bool = False) -> tuple[Prepared, ModelRequest]:
    """The next request of an open session to the model `info`, and its prompt; `fresh`: compiled anew."""
    system = (session.skills,) if session.skills else ()
    bare = ModelRequest(system, (), session.toolbox.specs(), session.conversation.id)
    return requested(session.prompts, session.conversation.history, bare, info, session.counter, fresh=fresh)


def requested(
    prompts: Prompts,
    history: History,
    bare: ModelRequest,
    info: ModelInfo,
    counter: Counter,
    *,
    fresh: bool = False,
) -> tuple[Prepared, ModelRequest]:
    """The next request of the conversation `history`, and its prompt; `bare` is what the request has beside
    prompt and messages. A prompt that was compiled from older memory is kept, with updates, only as long as
    that fits: what the person shortened would stay in it for ever.

    Raises:
        MemoryStoreError: as `Prompts.prepare`.
    """
    counter.use(info)
    for anew in (fresh or history.compacted, True):
        prepared = prompts.prepare(history.last_prompt, info.system_messages, compacted=anew)
        messages = visible_messages(history, prepared.key)
        if prepared.update is not None:
            messages = (*messages, prepared.update)
        request = replace(bare, system=(prepared.system, *bare.system), messages=messages)
        if anew or prepared.key.revision == prepared.key.seen:
            break
        updates = sum(counter.message_tokens(message) for message in messages if message.role == "system")
        size = counter.request(request) + answer_room(info)
        if size <= info.window and updates <= info.window * _UPDATES:
            break
    return prepared, request


def _sentences(compiled: CompiledPrompt) -> tuple[str, ...]:
    return tuple(f"{problem.path} {problem.message}" for problem in compiled.problems)
