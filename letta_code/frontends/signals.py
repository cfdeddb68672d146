"""Signals and the parent's death while a turn runs: each ends the turn in order and decides the exit code."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from letta_code.errors import EXIT_INTERRUPTED, EXIT_TERMINATED

EXIT_HANGUP = 129  # 128 + SIGHUP
_POLL = 1.0  # seconds between looks at our parent


class Ending:
    """Whether something from outside ended the turn. `code` is then the exit code."""

    def __init__(self, cancel: Callable[[], None], interactive: bool) -> None:
        self._cancel = cancel
        self._interactive = interactive
        self.code: int | None = None

    def end(self, code: int) -> None:
        """Cancel the turn; the first cause decides the exit code."""
        if self.code is None:
            self.code = code
        self._cancel()

    def interrupt(self) -> None:
        """SIGINT: the first one cancels, the second one leaves at once, except in a chat, where an
        impatient Ctrl-C must not end the session."""
        if self.code is not None and not self._interactive:
            raise SystemExit(EXIT_INTERRUPTED)
        self.end(EXIT_INTERRUPTED)


@asynccontextmanager
async def ending_signals(cancel: Callable[[], None], *, interactive: bool = False) -> AsyncIterator[Ending]:
    """While the block runs, SIGINT, SIGTERM, SIGHUP and (unless `interactive`: a chat) our parent's
    death call `cancel`.

    A SIGHUP that was ignored when we started (nohup) stays ignored, and then the parent may die too.
    """
    loop = asyncio.get_running_loop()
    ending = Ending(cancel, interactive)
    hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    loop.add_signal_handler(signal.SIGINT, ending.interrupt)
    loop.add_signal_handler(signal.SIGTERM, ending.end, EXIT_TERMINATED)
    if hangup:
        loop.add_signal_handler(signal.SIGHUP, ending.end, EXIT_HANGUP)
    watcher = asyncio.create_task(_parent_death(ending)) if hangup and not interactive else None
    try:
        yield ending
    finally:
        if watcher is not None:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
        for number in (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangup else ())):
            loop.remove_signal_handler(number)


async def _parent_death(ending: Ending) -> None:
    parent = os.getppid()
    if parent == 1:  # started orphaned, or by the init of a container
        return
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel tells nobody of a parent's death portably
        await asyncio.sleep(_POLL)
    ending.end(EXIT_HANGUP)
