"""Long output for a person: in colour and through a pager on a terminal; plain into a pipe or file."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import typer

from letta_code.cli.show import visible
from letta_code.errors import UsageError

NoPager: TypeAlias = Annotated[bool, typer.Option("--no-pager", help="Print it all at once.")]
Colour = Literal["red", "green", "yellow", "cyan", "bold", "dim"]

_DEFAULT = "less -FRX"
_CODES: Mapping[Colour, str] = {
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "bold": "1",
    "dim": "2",
}


class Page:
    """Collects what a command prints. Text that comes from memory is made safe by the caller (`visible`,
    `label`); colours are only put in where the terminal takes them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        from letta_code.frontends.output import wants_colour

        self._colour = wants_colour(sys.stdout, environment)
        self._environment = environment
        self._parts: list[str] = []

    def write(self, text: str) -> None:
        """Add text."""
        self._parts.append(text)

    def paint(self, text: str, colour: Colour) -> str:
        """`text`, which is one line, in a colour."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self._colour and text else text

    def write_diff(self, patch: str) -> None:
        """Add a unified diff as it came from memory."""
        for line in visible(patch).splitlines(keepends=True):
            colour = _diff_colour(line)
            body = line.removesuffix("\n")
            self.write((self.paint(body, colour) if colour else body) + line[len(body) :])

    def show(self, plain: bool = False) -> None:
        """Print it: through `$LETTA_PAGER`, `$PAGER` or less when it is longer than the terminal, unless
        `plain`.

        Raises:
            UsageError: the pager's words cannot be read.
        """
        text = "".join(self._parts)
        pager = _pager(self._environment) if not plain and sys.stdout.isatty() and _is_long(text) else None
        if pager is None or not _paged(pager, text, self._environment):
            sys.stdout.write(text)


def _diff_colour(line: str) -> Colour | None:
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "rename ")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    return "green" if line.startswith("+") else "red" if line.startswith("-") else None


def _pager(environment: Mapping[str, str]) -> list[str] | None:
    """The words that start the pager; None when there is to be none."""
    wanted = environment.get("LETTA_PAGER", environment.get("PAGER", _DEFAULT))
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        raise UsageError(f"LETTA_PAGER or PAGER cannot be read: {error}") from error
    if not words or words == ["cat"] or environment.get("TERM") == "dumb":
        return None
    return words if shutil.which(words[0], path=environment.get("PATH")) else None


def _is_long(text: str) -> bool:
    columns, rows = shutil.get_terminal_size()
    used = 0
    for line in text.splitlines():
        used += 1 + max(0, len(line) - 1) // columns
        if used >= rows:
            return True
    return False


def _paged(words: list[str], text: str, environment: Mapping[str, str]) -> bool:
    """Whether the pager could be started; it is waited for."""
    sys.stdout.flush()
    # Ctrl-C is the pager's while it runs (a handler, since what is ignored stays ignored in a child).
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        pager = subprocess.Popen(
            words, stdin=subprocess.PIPE, env={"LESS": "FRX", "LESSCHARSET": "utf-8", **environment}
        )
        try:
            pager.communicate(text.encode("utf-8", "backslashreplace"))
        except BrokenPipeError:
            pager.wait()  # it was left before the end
        return True
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
