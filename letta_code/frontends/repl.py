"""The chat: reads a line, runs a turn or a slash command, prints its events, until the person leaves."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TextIO, cast

from prompt_toolkit import PromptSession
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from letta_code import __version__
from letta_code.core.events import ApprovalAsked
from letta_code.core.text import one_line
from letta_code.core.tooling import ApprovalRequest, Decision
from letta_code.errors import EXIT_FAILED, LettaError
from letta_code.frontends import show
from letta_code.frontends.host import Host, Session, Turn
from letta_code.frontends.keys import InputLine, TypeAhead
from letta_code.frontends.output import Output, plain_text, prepare_streams, wants_colour
from letta_code.frontends.screen import Screen
from letta_code.frontends.signals import EXIT_HANGUP, Ending
from letta_code.frontends.slash import COMMANDS, Leave, Slash


async def run_chat(host: Host, session: Session, first_prompt: str | None, ending: Ending) -> int:
    """Chat until the person leaves or `ending` ends it; returns the exit code. Closes the session it ends
    with.

    Needs a terminal on stdin and stdout.
    """
    prepare_streams()
    chat = Chat(host, session, ending)
    code = EXIT_FAILED
    try:
        code = await chat.run(first_prompt)
        return code
    finally:
        ending.closing(code)
        await chat.close(chat.session)


class Chat:
    """One chat: the session that is open, and where it is shown."""

    def __init__(self, host: Host, session: Session, ending: Ending) -> None:
        self.session = session
        self._ending = ending
        colour = wants_colour(sys.stdout)
        self._console = Console(
            color_system="auto" if colour else None,
            no_color=not colour,
            emoji=False,
            highlight=False,
            file=cast(TextIO, Output(sys.stdout, ending.writable, lambda: ending.end(EXIT_HANGUP))),
        )
        self._screen = Screen(self._console, host.log_file)
        self._slash = Slash(host, self._console)
        self._line = InputLine(host.history_file, COMMANDS, self._mode, self._next_mode)
        self._ahead = TypeAhead()
        self._running: Turn | None = None
        self._terminal = asyncio.Lock()
        self._announced: dict[str, asyncio.Event] = {}

    async def run(self, first_prompt: str | None) -> int:
        """The loop; returns the exit code."""
        self._console.print(header(self.session), soft_wrap=True)
        if first_prompt and first_prompt.strip():
            self._console.print(Text(f"› {plain_text(first_prompt)}", style="bold"))
            code = await self._turn(first_prompt)
            if code is not None:
                return code
        warned = False
        while True:
            try:
                text = await self._line.ask(self._ahead.take())
            except EOFError:
                return 0
            except KeyboardInterrupt:
                if warned:
                    return 0
                warned = True
                self._console.print("Ctrl-C again, or Ctrl-D, leaves", style="dim")
                continue
            warned = False
            code = await self._do(text)
            if code is not None:
                return code

    async def _do(self, text: str) -> int | None:
        """One line of the person; returns the exit code when the chat is over."""
        if not text.strip():
            return None
        try:
            if text.startswith("/") and "\n" not in text and "/" not in text[1:].split(" ")[0]:
                await self._command(text)
                return None
            return await self._turn(text)
        except Leave:
            return 0
        except LettaError as error:
            self._console.print(show.error(error.message, error.hint))
            return None

    async def _command(self, text: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            with self._ending.cancelling(task.cancel):
                opened = await self._slash.run(text.strip(), self.session)
        except asyncio.CancelledError:
            if self._ending.code is not None:
                raise
            task.uncancel()
            self._console.print(show.error("interrupted"))
            return
        if opened is not self.session:
            opened.policy.set_mode(self.session.policy.mode)
            before, self.session = self.session, opened
            await self.close(before)

    async def close(self, session: Session) -> None:
        """Close a session and say which commands that ended."""
        for line in await session.close():
            self._console.print(plain_text(line), style="dim", markup=False)

    def _mode(self) -> str:
        """What the input line says of the permission mode."""
        mode = self.session.policy.mode
        return "" if mode == "default" else mode

    def _next_mode(self) -> None:
        policy = self.session.policy
        modes = list(policy.modes)
        policy.set_mode(modes[(modes.index(policy.mode) + 1) % len(modes)])

    async def _turn(self, text: str) -> int | None:
        """One turn. Ctrl-C interrupts it and the chat goes on; again, and the chat ends; SIGTERM and SIGHUP
        end both."""
        turn = self._running = self.session.turn(text, self._ask)
        with self._ahead.kept(), self._ending.cancelling(turn.cancel):
            async for event in turn.events():
                async with self._terminal:
                    self._screen.show(event, self.session.model.info.window)
                if isinstance(event, ApprovalAsked):
                    self._announcement(event.request.call_id).set()
        self._announced.clear()
        return self._ending.code

    def _announcement(self, call_id: str) -> asyncio.Event:
        return self._announced.setdefault(call_id, asyncio.Event())

    async def _ask(self, request: ApprovalRequest) -> Decision:
        """The permission question, once all that happened before it is printed; what happens meanwhile
        is printed after it."""
        await self._announcement(request.call_id).wait()
        async with self._terminal:
            return await self._answer(request)

    async def _answer(self, request: ApprovalRequest) -> Decision:
        """Ask until there is an answer. What was typed before the question appeared is none."""
        self._screen.settle()
        self._ahead.collect()
        self._console.print(question(request))
        offered = bool(request.rule)
        keys = "1 once · 2 always · 3 no" if offered else "1 once · 2 no"
        prompt: PromptSession[str] = PromptSession()
        while True:
            try:
                answer = (await prompt.prompt_async(f"{keys} › ", handle_sigint=False)).strip()
            except (KeyboardInterrupt, EOFError):
                return await self._interrupted()
            decision = parse_answer(answer, offered)
            if decision is not None and decision.choice == "deny" and not decision.feedback:
                return await self._reason(prompt)
            if decision is not None:
                return decision

    async def _reason(self, prompt: PromptSession[str]) -> Decision:
        why = "why, or what instead (Enter: no reason) › "
        try:
            return Decision("deny", (await prompt.prompt_async(why, handle_sigint=False)).strip())
        except KeyboardInterrupt:
            return await self._interrupted()
        except EOFError:
            return Decision("deny")

    async def _interrupted(self) -> Decision:
        """Ctrl-C as a key, which a question gets instead of the signal. The turn is cancelled here, before
        an answer could let it go on."""
        self._ending.interrupt()
        if self._running is not None:
            self._running.cancel()
        await asyncio.sleep(1)
        return Decision("deny", "the person interrupted")


def parse_answer(answer: str, offered: bool) -> Decision | None:
    """What an answer means; None: ask again. Words after a no are the reason. Where "always" is not offered,
    2 and 3 are both no."""
    word, _, rest = answer.partition(" ")
    match word.lower():
        case "1" | "y" | "yes":
            return Decision("once") if not rest else None
        case "2" | "a" | "always" if offered:
            return Decision("always") if not rest else None
        case "2" | "3" | "n" | "no":
            return Decision("deny", rest.strip())
        case _:
            return None


def question(request: ApprovalRequest) -> Padding:
    """What is asked: title, reason, what would change, what "always" would allow."""
    rows: list[RenderableType] = [
        Text.assemble(("? ", "bold yellow"), (plain_text(one_line(request.title, 400)), "bold")),
        *(Padding(show.display(item), (0, 0, 0, 2)) for item in request.display),
        Text(f"  {plain_text(request.reason)}", style="dim"),
    ]
    if request.rule:
        rows.append(Text(f"  always: {plain_text(request.rule)}, for this session", style="dim"))
    return Padding(Group(*rows), (1, 0, 0, 0))


def header(session: Session) -> Text:
    """Who answers, with which model, where, where its memory is, and what its shell runs in."""
    memory, sandbox = session.workspace.memory, session.workspace.sandbox
    return Text.assemble(
        ("Letta Code ", "bold"),
        (f"{__version__}\n", "dim"),
        f"agent   {plain_text(session.agent.name)} · {session.model.info.handle} · {session.policy.mode}\n",
        f"project {_short(session.workspace.project)}\n",
        f"memory  {_short(memory) if memory is not None else 'none'}\n",
        "" if sandbox is None else f"shell   {sandbox.label}\n",
        ("/help shows the commands\n", "dim"),
    )


def _short(path: Path) -> str:
    """`path` with the home folder written as ~."""
    home = os.environ.get("HOME", "").rstrip("/")
    text = str(path)
    return plain_text(f"~{text[len(home) :]}" if home and text.startswith(f"{home}/") else text)
