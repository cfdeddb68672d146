"""What ends a run from outside: signals, our parent's death, a terminal that is gone.

An `Ending` is there from before the session is opened until after it is closed. Each cause cancels what runs,
so that it ends in order, and decides the exit code. A thread sees to it that this cannot last: when the event
loop does not hear of it (it is stuck in a write or a disk), or the end takes too long, the thread ends
our processes and the program.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
import termios
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Literal, Self

from letta_code.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED
from letta_code.frontends.output import point_at_nothing
from letta_code.tools.processes.jobs import end_all

EXIT_HANGUP = 129  # 128 + SIGHUP

_POLL = 1.0  # seconds between looks at our parent
_PATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ANY_WAY_OUT = b"\x1b[?2004l\x1b[?25h\x1b[0m\r\n"  # pasting as it was, a visible cursor, no colour


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that an end may take. `reader`: that one who does not read is waited for; `heard`: until the
    event loop knows of it; `ended`: until all is over (tools have two of them to end, and one more);
    `closed`: for closing what a run that ended by itself holds."""

    reader: float = 1.0
    heard: float = 2.0
    ended: float = 8.0
    closed: float = 10.0


class Ending:
    """Whether something from outside ended the run. `code` is then the exit code. `interactive`: a chat."""

    def __init__(self, *, interactive: bool = False, patience: Patience | None = None) -> None:
        self.code: int | None = None
        self._patience = patience or Patience()
        self._interactive = interactive
        self._phase: Literal["before", "running", "after"] = "before"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancel: Callable[[], object] = _nothing
        self._in_turn = False
        self._interrupts = 0
        self._began = 0.0
        self._deadline: float | None = None
        self._result = EXIT_FAILED
        self._before: dict[signal.Signals, Any] = {}
        self._parent = os.getppid()
        self._main = threading.main_thread().ident
        self._bell = self._ring = self._ended = self._over = -1
        self._watcher: threading.Thread | None = None
        self._terminal: list[Any] | None = None

    def __enter__(self) -> Self:
        """Handle signals from now on. A SIGHUP that was ignored when we started (nohup) stays ignored, and
        then the parent may die too. Outside the main thread nothing is handled."""
        self._bell, self._ring = os.pipe()
        self._ended, self._over = os.pipe()
        if threading.current_thread() is not threading.main_thread():
            return self
        if self._interactive:
            self._terminal = _attributes()
        for number in _PATCHED:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                self._parent = 1
                continue
            self._before[number] = signal.signal(number, self._on_signal)
        self._watcher = threading.Thread(target=self._watch, name="letta-ending", daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Handle signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._ring)
        if self._watcher is not None:
            self._watcher.join()
        for descriptor in (self._bell, self._ended, self._over):
            os.close(descriptor)

    def run(self, main: Coroutine[Any, Any, int]) -> int:
        """Run `main` in an event loop of its own; the exit code: that of the end, when there was one."""
        code = EXIT_FAILED
        try:
            code = asyncio.run(self._run(main))
        except asyncio.CancelledError:
            if self.code is None:
                raise
        except OSError:
            if not self._is_terminal_gone():
                raise
        if self._is_terminal_gone():
            self.code = EXIT_HANGUP if self.code is None else self.code
            for stream in (sys.stdout, sys.stderr):
                if stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):  # it is no terminal any more
                    point_at_nothing(stream)
        return code if self.code is None else self.code

    async def _run(self, main: Coroutine[Any, Any, int]) -> int:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._cancel = task.cancel
        self._phase = "running"
        try:
            return await main
        finally:
            self._phase = "after"

    # What the front ends say -----------------------------------------------------------------------

    @contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Iterator[None]:
        """While the block runs, an end or an interrupt calls `cancel` in the event loop. In a chat the first
        Ctrl-C does only that, and the second ends the chat."""
        before, self._cancel = self._cancel, cancel
        self._in_turn, self._interrupts = True, 0
        try:
            if self.code is not None:
                cancel()
            yield
        finally:
            self._cancel, self._in_turn = before, False

    def closing(self, code: int) -> None:
        """The run is over with exit code `code` and closes what it holds: that is not cancelled, and
        cannot last."""
        self._cancel, self._result = _nothing, code
        if self._deadline is None:
            self._deadline = time.monotonic() + self._patience.closed
            os.write(self._ring, b"!")

    def end(self, code: int) -> None:
        """End the run; the first cause decides the exit code. From any thread."""
        if self.code is not None:
            return
        self.code = code
        self._began = time.monotonic()
        self._deadline = self._began + self._patience.heard
        os.write(self._over, b"!")
        os.write(self._ring, b"!")
        if self._phase == "running" and self._loop is not None:
            self._loop.call_soon_threadsafe(self._heard)

    def interrupt(self) -> None:
        """Ctrl-C. One shot: the first one ends the run, the second one leaves at once. In a chat: the first
        one cancels the turn, the second one ends the chat, the third one leaves at once."""
        if self.code is not None:
            self.leave()
        if not (self._interactive and self._in_turn):
            self.end(EXIT_INTERRUPTED)
            return
        self._interrupts += 1
        if self._interrupts > 1:
            self.end(EXIT_INTERRUPTED)
            end_all()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_now)

    def writable(self, descriptor: int) -> bool:
        """Wait until something can be written to `descriptor`; False: the run is being ended meanwhile, and
        whoever reads it does not."""
        while True:
            left = (
                None
                if self.code is None
                else max(0.0, self._began + self._patience.reader - time.monotonic())
            )
            watched = [self._ended] if left is None else []
            ready, free, _ = select.select(watched, [descriptor], [], left)
            if free:
                return True
            if not ready:
                return False

    def leave(self) -> None:
        """End our processes and the program, now. What was finished is in the transcript."""
        end_all()
        if self._terminal is not None:
            _restore(self._terminal)
        os._exit(self._result if self.code is None else self.code)

    # Inside ----------------------------------------------------------------------------------------

    def _heard(self) -> None:
        self._deadline = self._began + self._patience.ended
        self._cancel()

    def _cancel_now(self) -> None:
        self._cancel()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._phase == "before":  # nothing has begun
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        if number == signal.SIGINT:
            self.interrupt()
        else:
            self.end(EXIT_TERMINATED if number == signal.SIGTERM else EXIT_HANGUP)

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {*_PATCHED, signal.SIGTTOU, signal.SIGTSTP})
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        if self._interactive:
            poll.register(0, 0)
        gone = False
        while True:
            for descriptor, event in poll.poll(1000 * self._pause()):
                if descriptor == 0:
                    poll.unregister(0)
                    gone = True
                elif event & select.POLLIN:
                    os.read(self._bell, 64)
                else:
                    return  # `__exit__`
            if not self._interactive and self._parent != 1 and os.getppid() != self._parent:
                gone = True
            if gone and self.code is None:
                self._hang_up()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self.leave()

    def _pause(self) -> float:
        return _POLL if self._deadline is None else max(0.0, min(_POLL, self._deadline - time.monotonic()))

    def _hang_up(self) -> None:
        if self._phase == "before" and self._main is not None:
            signal.pthread_kill(self._main, signal.SIGHUP)
        else:
            self.end(EXIT_HANGUP)

    def _is_terminal_gone(self) -> bool:
        if not self._interactive:
            return False
        poll = select.poll()
        poll.register(0, 0)
        return bool(poll.poll(0))


def _nothing() -> None:
    """What cancels nothing."""


def _attributes() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore(terminal: list[Any]) -> None:
    """Give the terminal back as it was. It may be gone, or its reader may not read: neither is waited for."""
    try:
        termios.tcsetattr(0, termios.TCSANOW, terminal)
        descriptor = os.open(os.ttyname(0), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        os.write(descriptor, _ANY_WAY_OUT)
    except (OSError, termios.error):
        return
