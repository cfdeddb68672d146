"""How the window of a model is shown: one bar, and a line for each part of what fills it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from letta_code.cli.show import label

if TYPE_CHECKING:
    from letta_code.agent.window import Filled, Part

_COLOURS = {
    "base prompt": "blue",
    "core memory": "magenta",
    "external tree": "bright_magenta",
    "skills": "cyan",
    "tools": "yellow",
    "project notes": "bright_blue",
    "summary": "bright_cyan",
    "messages": "green",
}
_ITEMS = 15  # named of one part; the rest is one line
_BAR = 60  # columns of the bar at most
_NAME = 40  # columns of a name at most
_NARROW = 40  # columns below which there is no share


class WindowView:
    """A window for a terminal of any width, with colours or without. `notes` says more of an item (its part's
    name and its own); `lines` follow below."""

    def __init__(
        self, filled: Filled, notes: dict[tuple[str, str], str], lines: Sequence[str], assumed: bool
    ) -> None:
        self._filled = filled
        self._notes = notes
        self._lines = lines
        self._assumed = assumed

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(20, options.max_width)
        yield from self._head(width)
        for name, tokens, colour, note in self._rows():
            yield from self._row(width, name, tokens, colour, note)
        for line in self._lines:
            yield Text(line, "yellow" if line.startswith("warning") else "")

    def _head(self, width: int) -> RenderResult:
        filled = self._filled
        how = f"counted with {filled.tokenizer}" if filled.tokenizer else "estimated"
        how = "as the last answer's usage says" if filled.measured else f"{how}: no answer yet"
        if not filled.window:
            yield Text(f"about {filled.total:,} tokens ({how}); no model is chosen")
            return
        yield Text(label(filled.model), "bold")
        share = filled.total / filled.window
        assumed = ", assumed" if self._assumed else ""
        yield Text(f"{filled.total:,} of {filled.window:,} tokens{assumed} ({share:.1%}), {how}")
        yield from self._bar(min(_BAR, width - 1))

    def _bar(self, columns: int) -> Iterator[Segment]:
        filled = self._filled
        pieces = [(part.tokens, "█", _COLOURS[part.name]) for part in filled.parts]
        pieces += [(max(0, filled.free), "░", "bright_black"), (filled.reserved, "▒", "bright_black")]
        whole = sum(tokens for tokens, _, _ in pieces) or 1
        before = given = 0
        for tokens, sign, colour in pieces:
            before += tokens
            upto = round(before * columns / whole)
            yield Segment(sign * (upto - given), Style(color=colour))
            given = upto
        yield Segment("\n")

    def _rows(self) -> Iterator[tuple[str, int, str, str]]:
        filled = self._filled
        for part in filled.parts:
            if not part.tokens:
                continue
            yield part.name, part.tokens, _COLOURS[part.name], ""
            for name, tokens in shown_items(part):
                yield f"  {label(name)}", tokens, "", self._notes.get((part.name, name), "")
        if filled.window:
            yield "kept for the answer", filled.reserved, "bright_black", ""
            yield "free", filled.free, "bright_black", ""

    def _row(self, width: int, name: str, tokens: int, colour: str, note: str) -> Iterator[Segment]:
        whole = self._filled.window or self._filled.total
        share = f"{tokens / whole:7.1%}" if whole and width >= _NARROW else ""
        room = min(_NAME, max(8, width - 12 - len(share)))
        name = name if len(name) <= room else f"{name[: room - 1]}…"
        yield Segment("█ " if colour else "  ", Style(color=colour) if colour else None)
        line = f"{name:<{room}}{tokens:>10,}{share}"
        yield Segment(f"{line}  {note}\n" if note and len(line) + len(note) + 4 < width else f"{line}\n")


def shown_items(part: Part) -> list[tuple[str, int]]:
    """The items of a part that are worth a line, and one line for the rest."""
    items = [(name, tokens) for name, tokens in part.items if tokens]
    if part.name != "messages":
        items.sort(key=lambda item: -item[1])
    rest = items[_ITEMS:]
    if len(rest) > 1:
        return [*items[:_ITEMS], (f"… {len(rest):,} smaller", sum(tokens for _, tokens in rest))]
    return items


def window_data(filled: Filled, assumed: bool) -> dict[str, Any]:
    """The same for JSON. The parts add up to `total`; `total`, `reserved` and `free` to `size`."""
    return {
        "model": filled.model or None,
        "size": filled.window or None,
        "assumed": assumed,
        "total": filled.total,
        "measured": filled.measured,
        "tokenizer": filled.tokenizer or None,
        "reserved": filled.reserved,
        "free": filled.free if filled.window else None,
        "parts": [
            {
                "name": part.name,
                "tokens": part.tokens,
                "items": [{"name": name, "tokens": tokens} for name, tokens in part.items],
            }
            for part in filled.parts
        ],
    }
