"""The chat's input line: its key bindings, history and completion, and the terminal while a turn runs."""

from __future__ import annotations

import os
import re
import select
import signal
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import has_completions
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent

from letta_code.core.text import well_formed
from letta_code.errors import StorageError
from letta_code.frontends.output import plain_text
from letta_code.storage import private_folder

_MODIFIED_NEWLINES = ("\x1b[13;2u", "\x1b[106;5u", "\x1b[27;2;13~", "\x1b[27;5;106~")
"""Shift+Enter and Ctrl+J as terminals write them that encode modified keys."""


class CommandCompleter(Completer):
    """Completes slash commands at the start of a line."""

    def __init__(self, commands: Sequence[tuple[str, str]]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The commands that begin with what was typed."""
        typed = document.text_before_cursor
        if not typed.startswith("/") or " " in typed or "\n" in typed:
            return
        for name, summary in self._commands:
            if name.startswith(typed):
                yield Completion(name, -len(typed), display_meta=summary)


class InputLine:
    """Asks for the person's next message."""

    def __init__(
        self,
        history_file: Path,
        commands: Sequence[tuple[str, str]],
        mode: Callable[[], str],
        next_mode: Callable[[], None],
    ) -> None:
        """`mode` is what stands before the mark, "" for nothing; Shift+Tab calls `next_mode`."""
        self._session: PromptSession[str] = PromptSession(
            message=lambda: f"{mode()} › ".lstrip(),
            multiline=True,
            prompt_continuation="  ",
            history=_history(history_file),
            completer=CommandCompleter(commands),
            complete_while_typing=True,
            key_bindings=_bindings(next_mode),
            reserve_space_for_menu=4,
        )

    async def ask(self, typed: str) -> str:
        """The next message; `typed` is what the person wrote already.

        Raises:
            KeyboardInterrupt: Ctrl-C. EOFError: Ctrl-D on an empty line.
        """
        return well_formed(await self._session.prompt_async(default=typed, handle_sigint=False))


def _history(file: Path) -> History:
    """History in a private file; in memory only when it cannot be written: no reason not to chat."""
    try:
        private_folder(file.parent)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except (OSError, StorageError):
        return InMemoryHistory()
    return FileHistory(file)


def _bindings(next_mode: Callable[[], None]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline()
        else:
            buffer.validate_and_handle()

    @keys.add("s-tab", filter=~has_completions)
    def _(event: KeyPressEvent) -> None:
        next_mode()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    for sequence in _MODIFIED_NEWLINES:
        keys.add(*("escape" if char == "\x1b" else char for char in sequence))(_)
    return keys


class TypeAhead:
    """The terminal while a turn runs: nothing is echoed, Ctrl-C is a signal, typed keys are kept."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._bytes = b""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep keys as they are typed while the block runs."""
        try:
            before = termios.tcgetattr(self._descriptor)
            quiet = termios.tcgetattr(self._descriptor)
        except termios.error:  # the terminal is gone, which ends the chat
            yield
            return
        quiet[0] &= ~(termios.ICRNL | termios.IXON)
        quiet[3] &= ~(termios.ECHO | termios.ICANON)
        quiet[3] |= termios.ISIG | termios.NOFLSH  # Ctrl-C must not throw away what was typed before it

        def stop(_number: int, _frame: FrameType | None) -> None:
            """Ctrl-Z: the shell gets the terminal as it was; `fg` makes it quiet again."""
            self._set(before)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, stop)
            self._set(quiet)

        stopped = signal.signal(signal.SIGTSTP, stop)
        self._set(quiet)
        try:
            yield
        finally:
            self.collect()
            self._set(before)
            signal.signal(signal.SIGTSTP, stopped)

    def _set(self, attributes: list[Any]) -> None:
        try:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, attributes)
        except termios.error:
            return  # it is gone

    def collect(self) -> None:
        """Take what was typed so far out of the terminal, so that it cannot answer a question."""
        while select.select([self._descriptor], [], [], 0)[0]:
            try:
                chunk = os.read(self._descriptor, 4096)
            except OSError:  # the terminal is gone
                break
            if not chunk:
                break
            self._bytes += chunk

    def take(self) -> str:
        """What was typed, as text for the input line; Enter has become a newline."""
        data, self._bytes = self._bytes, b""
        return _typed(data.decode("utf-8", "replace"))


def _typed(text: str) -> str:
    text = text.replace("\r", "\n")
    while "\x7f" in text:  # Backspace takes back the character before it
        text = re.sub(r"[^\x7f]\x7f|^\x7f", "", text, count=1)
    return plain_text(text).rstrip("\n")
