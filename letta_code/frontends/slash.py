"""The chat's slash commands."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich.console import Console

from letta_code.core.text import one_line
from letta_code.errors import UsageError
from letta_code.frontends.host import Host, Session
from letta_code.frontends.output import plain_text

COMMANDS: tuple[tuple[str, str], ...] = (
    ("/help", "these commands, and the keys"),
    ("/new", "start a new conversation"),
    ("/resume", "[ID]  list earlier conversations, or go on with one"),
    ("/model", "[PROVIDER/NAME]  list models, or use another one"),
    ("/compact", "[INSTRUCTIONS]  summarise the conversation so far, to make room"),
    ("/undo", "[N]  give files back what they held before the last turns; --redo takes that back"),
    ("/permissions", "[MODE]  what may run unasked, and why; or change the mode (also Shift+Tab)"),
    ("/search", "QUERY  find messages in this agent's conversations"),
    ("/memory", "the latest commits of the agent's memory"),
    ("/context", "what fills the model's window"),
    ("/cost", "tokens, cache hits and cost of this conversation"),
    ("/exit", "leave (also Ctrl-D)"),
)
_KEYS = (
    "Enter sends · Alt+Enter, Ctrl+J or \\ Enter: new line · Shift+Tab: next permission mode · "
    "Ctrl-C interrupts · Ctrl-D leaves"
)
_LISTED = 15


class Leave(Exception):
    """The person wants to leave."""


@dataclass(frozen=True, slots=True)
class Slash:
    """Runs slash commands for one chat."""

    host: Host
    console: Console

    async def run(self, line: str, session: Session) -> Session:
        """Do what `line` says; returns the session to go on with, `session` itself or a new one.

        Raises:
            Leave: /exit. LettaError: it cannot be done; the session goes on.
        """
        name, _, argument = line.partition(" ")
        actions: dict[str, Callable[[str, Session], Awaitable[Session]]] = {
            "/help": self._help,
            "/new": self._new,
            "/resume": self._resume,
            "/model": self._model,
            "/compact": self._compact,
            "/undo": self._undo,
            "/permissions": self._permissions,
            "/search": self._search,
            "/memory": self._memory,
            "/context": self._context,
            "/cost": self._cost,
        }
        if name in ("/exit", "/quit"):
            raise Leave
        if name not in actions:
            near = difflib.get_close_matches(name, [known for known, _ in COMMANDS], 1)
            raise UsageError(f"no such command: {name}", f"did you mean {near[0]}?" if near else "see /help")
        return await actions[name](argument.strip(), session)

    def say(self, text: str, style: str = "") -> None:
        """Print `text` as it is."""
        self.console.print(plain_text(text), style=style, markup=False, highlight=False, soft_wrap=True)

    async def _help(self, argument: str, session: Session) -> Session:
        for name, summary in COMMANDS:
            self.say(f"  {name:<12} {summary}")
        self.say(f"  {_KEYS}", "dim")
        return session

    async def _new(self, argument: str, session: Session) -> Session:
        opened = await self.host.new_session()
        self.say(f"new conversation {opened.conversation.id}", "dim")
        return opened

    async def _resume(self, argument: str, session: Session) -> Session:
        if not argument:
            earlier = [item for item in self.host.conversations() if item.turns]
            for item in earlier[:_LISTED]:
                self.say(f"  {item.id}  {item.updated_at[:16]}  {one_line(item.title, 60)}")
            more = (
                f"; {len(earlier) - _LISTED} more in `letta conversations list`"
                if len(earlier) > _LISTED
                else ""
            )
            self.say(f"/resume ID goes on with one{more}" if earlier else "no earlier conversation", "dim")
            return session
        if session.conversation.id.startswith(argument):
            self.say("that is this conversation", "dim")
            return session
        opened = await self.host.resume(argument)
        self.say(f"going on with {opened.conversation.id}", "dim")
        return opened

    async def _model(self, argument: str, session: Session) -> Session:
        if argument:
            await self.host.open_model(session, argument)
            self.say(f"the next request goes to {session.model.info.handle}", "dim")
            return session
        now = session.model.info.handle
        for handle in await self.host.models():
            self.say(f"  {'›' if handle == now else ' '} {handle}")
        self.say(f"now {now}; /model PROVIDER/NAME uses another one", "dim")
        return session

    async def _compact(self, argument: str, session: Session) -> Session:
        from letta_code.frontends.compaction import run_compact

        done = await run_compact(argument, session, lambda line: self.say(line, "dim"))
        if done is not None:
            self.say(done.summary)
        return session

    async def _undo(self, argument: str, session: Session) -> Session:
        from letta_code.frontends.undo import run_undo

        await run_undo(argument, session, self.host, self.say)
        return session

    async def _permissions(self, argument: str, session: Session) -> Session:
        if argument:
            session.policy.set_mode(argument)
            self.say(f"permission mode {session.policy.mode}", "dim")
            return session
        sandbox = session.workspace.sandbox
        self.say(f"mode {session.policy.mode}" + ("" if sandbox is None else f" · shell: {sandbox.label}"))
        for rule in session.policy.rules():
            origin = f"  ({rule.origin})" if rule.origin else ""
            self.say(f"  {rule.decision:<5}  {one_line(rule.text, 200)}{origin}")
        others = [mode for mode in session.policy.modes if mode != session.policy.mode]
        self.say(f"/permissions MODE changes the mode: {', '.join(others)}; also Shift+Tab", "dim")
        return session

    async def _search(self, argument: str, session: Session) -> Session:
        for line in await self.host.search(session, argument):
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        return session

    async def _memory(self, argument: str, session: Session) -> Session:
        for line in self.host.memory_log():
            self.say(f"  {line}")
        self.say(f"files: {session.workspace.memory}", "dim")
        return session

    async def _context(self, argument: str, session: Session) -> Session:
        self.console.print(self.host.context(session), markup=False, highlight=False)
        return session

    async def _cost(self, argument: str, session: Session) -> Session:
        for line in self.host.cost(session):
            self.say(f"  {line}")
        return session
