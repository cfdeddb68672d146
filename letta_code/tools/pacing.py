"""Running output for a person's eyes, at a pace that a screen can follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_PROGRESS_PAUSE = 0.1  # seconds between two progress texts
_PROGRESS_SIZE = 4_000  # characters of one; what overflows it is in the result


class Paced:
    """Passes text on at once when it is rare, and in bounded pieces at intervals when it floods."""

    def __init__(self, target: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop
        self._pending = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        """Take `text`; the target gets it now or a little later."""
        if not text:
            return
        self._pending = (self._pending + text[-2 * _PROGRESS_SIZE :])[-2 * _PROGRESS_SIZE :]
        if self._timer is None:
            self._emit()
            self._timer = self._loop.call_later(_PROGRESS_PAUSE, self._tick)

    def flush(self) -> None:
        """Pass on what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._emit()

    def _tick(self) -> None:
        self._timer = None
        if self._pending:
            self._emit()
            self._timer = self._loop.call_later(_PROGRESS_PAUSE, self._tick)

    def _emit(self) -> None:
        text, self._pending = self._pending, ""
        if len(text) > _PROGRESS_SIZE:
            text = "…\n" + text[-_PROGRESS_SIZE:]
        if text:
            self._target(text)
