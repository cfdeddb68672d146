"""`conversation_search`: the agent's own stored messages. It is `recall.Recall`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from letta_code.core.ids import AgentKey
from letta_code.core.text import one_line
from letta_code.core.times import moment
from letta_code.core.tooling import ToolKind, ToolOutput
from letta_code.errors import ConversationError, StorageError, ToolError
from letta_code.paths import Paths
from letta_code.tools.base import Arguments, Call, Tool

if TYPE_CHECKING:
    from letta_code.conversations.history import Entry
    from letta_code.recall.search import Found, Wanted

_PAGE = 20_000  # characters of the message that is read, of all its neighbours, of all hits
_NEIGHBOUR = 1_000
_AROUND = 2  # messages on each side of the one that is read


class ConversationSearchArguments(Arguments):
    """What to look for, or what to read."""

    query: str = ""
    roles: tuple[Literal["user", "assistant", "tool"], ...] = ()
    start_date: str | None = None
    end_date: str | None = None
    conversation: str | None = Field(None, description="an id, or current")
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    around: str | None = Field(None, description="pointer of the message to read")
    before: Annotated[int | None, Field(ge=0, le=50)] = None
    after: Annotated[int | None, Field(ge=0, le=50)] = None
    offset: Annotated[int, Field(ge=0)] = 0


class ConversationSearch(Tool[ConversationSearchArguments]):
    """Finds and reads stored messages."""

    name: ClassVar[str] = "conversation_search"
    kind: ClassVar[ToolKind] = "read"
    arguments = ConversationSearchArguments

    def __init__(self, paths: Paths, key: AgentKey) -> None:
        self._paths = paths
        self._key = key

    def title(self, arguments: ConversationSearchArguments) -> str:
        """One line for people."""
        if arguments.around:
            return f"Read the conversation around {arguments.around}"
        return f"Search conversations: {arguments.query}"

    async def run(self, arguments: ConversationSearchArguments, call: Call) -> ToolOutput:
        """The messages."""
        stopped = Event()
        try:
            if arguments.around:
                return ToolOutput.of(await asyncio.to_thread(self._read, arguments, call))
            return ToolOutput.of(await asyncio.to_thread(self._search, arguments, call, stopped))
        except (ConversationError, StorageError) as error:
            raise ToolError(f"{error.message}: {error.hint}" if error.hint else error.message) from error
        finally:
            stopped.set()

    def _search(self, arguments: ConversationSearchArguments, call: Call, stopped: Event) -> str:
        from letta_code.recall.recall import Recall

        def go_on(count: int) -> None:
            if stopped.is_set():
                raise asyncio.CancelledError

        notes: list[str] = []
        found = Recall(self._paths, notes.append, go_on).search(self._wanted(arguments, call))
        return "\n\n".join([_told(found, arguments), *notes, *_listed(found)])

    def _wanted(self, arguments: ConversationSearchArguments, call: Call) -> Wanted:
        from letta_code.conversations.store import ConversationStore
        from letta_code.core.query import parse
        from letta_code.recall.search import Wanted

        conversation = arguments.conversation or ""
        if conversation == "current":
            conversation = call.conversation_id
        elif conversation:
            conversation = ConversationStore(self._paths).find(conversation, self._key).id
        return Wanted(
            parse(arguments.query),
            tuple(dict.fromkeys(arguments.roles)) or ("user", "assistant", "tool"),
            self._key,
            conversation,
            _milliseconds(arguments.start_date, end=False),
            _milliseconds(arguments.end_date, end=True),
            arguments.limit,
            arguments.before or 0,
            arguments.after or 0,
            (call.conversation_id, call.turn),
        )

    def _read(self, arguments: ConversationSearchArguments, call: Call) -> str:
        from letta_code.conversations.store import ConversationStore
        from letta_code.recall.paging import page
        from letta_code.recall.words import readable

        before = _AROUND if arguments.before is None else arguments.before
        after = _AROUND if arguments.after is None else arguments.after
        read = page(
            ConversationStore(self._paths),
            arguments.around or "",
            before,
            after,
            self._key,
            call.conversation_id,
        )
        room = min(_NEIGHBOUR, _PAGE // len(read.entries))
        parts = [f"Message {read.number:,} of {read.total:,} of {read.conversation}, with those around it:"]
        for place, entry in enumerate(read.entries):
            text = readable(entry.message)
            if place == read.place:
                shown = text[arguments.offset : arguments.offset + _PAGE]
                end = arguments.offset + len(shown)
                if len(shown) < len(text):
                    shown += f"\n[characters {arguments.offset:,} to {end:,} of {len(text):,}"
                    shown += f"; offset {end} goes on]" if end < len(text) else "]"
                parts.append(f"► {_head(entry)}\n{shown}")
            else:
                cut = f"\n[{len(text) - room:,} characters more]" if len(text) > room else ""
                parts.append(f"{_head(entry)}\n{text[:room]}{cut}")
        return "\n\n".join(parts)


def _milliseconds(text: str | None, *, end: bool) -> int | None:
    if not text:
        return None
    try:
        return int(moment(text, end=end).timestamp() * 1000)
    except ValueError as error:
        raise ToolError(str(error)) from error


def _told(found: Found, arguments: ConversationSearchArguments) -> str:
    if not arguments.query.strip():
        return "The newest messages:" if found.hits else "No message is stored that fits."
    whole = sum(hit.whole for hit in found.hits)
    if not found.hits:
        return "No message was found. Other words, in the language it was said in, may find it."
    if not whole:
        return "No message has all of that; these have some of it, best first (hits in **):"
    count = f"{found.total:,}{' or more' if found.more else ''}"
    some = f", then {len(found.hits) - whole} that have some of it" if whole < len(found.hits) else ""
    messages = "message has" if found.total == 1 else "messages have"
    return f"{count} {messages} all of that; {whole} shown, best first (hits in **){some}:"


def _listed(found: Found) -> list[str]:
    from letta_code.recall.paging import shortened

    parts: list[str] = []
    room = _PAGE
    for shown, hit in enumerate(found.hits):
        lines = [f"{_head(hit.entry, shortened(hit.pointer))}\n{hit.snippet.marked('**', '**')}"]
        lines[:0] = _neighbours(hit.before)
        lines += _neighbours(hit.after)
        part = "\n".join(lines)
        room -= len(part)
        if room < 0:
            parts.append(
                f"[{len(found.hits) - shown} more are left out: ask for fewer, or with less around them]"
            )
            break
        parts.append(part)
    return parts


def _neighbours(entries: Sequence[Entry]) -> list[str]:
    from letta_code.recall.words import readable

    return [f"  {entry.message.role}: {one_line(readable(entry.message), 300)}" for entry in entries]


def _head(entry: Entry, pointer: str = "") -> str:
    try:
        when = datetime.fromisoformat(entry.at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        when = entry.at
    return f"[{pointer or entry.id} · {entry.message.role} · {when}]"
