"""What a turn's values look like: pure functions from values to rich renderables. Prints nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from letta_code.core.events import TurnDone
from letta_code.core.text import one_line
from letta_code.core.tooling import (
    CommandDisplay,
    CommitDisplay,
    DiffDisplay,
    Display,
    PlainDisplay,
    TodoDisplay,
    ToolOutput,
)
from letta_code.frontends.output import plain_text

_DIFF_LINES = 40
_OUTPUT_LINES = 12
_WIDTH = 400  # characters of one line that are worth showing
_TODO_MARKS = {"completed": ("✓", "green"), "in_progress": ("▸", "bold"), "pending": ("○", "dim")}


def markdown(text: str) -> RenderableType:
    """A piece of an answer. Links show their address, since not every terminal can follow them."""
    return Markdown(plain_text(text), hyperlinks=False, code_theme="ansi_dark")


def thinking(text: str) -> RenderableType:
    """The beginning of what the model thought."""
    return Text(f"✻ {one_line(plain_text(text), 160)}", style="dim italic")


def tool_title(title: str) -> RenderableType:
    """The line above what a tool did."""
    return Text.assemble(("● ", "cyan"), (plain_text(one_line(title, 200)), "bold"))


def tool_output(output: ToolOutput, seconds: float) -> RenderableType | None:
    """What a tool did, bounded, indented below its title; None when the title says it all."""
    parts = [display(item) for item in output.display]
    if output.status != "ok" and not any(isinstance(item, CommandDisplay) for item in output.display):
        words = "\n".join(block.text for block in output.content if block.type == "text")
        parts.insert(0, _bounded(f"{output.status}: {words}", 6, "red"))
    if seconds >= 5:
        parts.append(Text(f"{seconds:.0f} s", style="dim"))
    return Padding(Group(*parts), (0, 0, 0, 2)) if parts else None


def display(item: Display) -> RenderableType:
    """One piece of what a tool wants the person to see."""
    match item:
        case PlainDisplay(text=text):
            return _bounded(text, _OUTPUT_LINES, "dim")
        case DiffDisplay(path=path, before=before, after=after):
            return diff(path, before, after)
        case CommandDisplay():
            return _command(item)
        case CommitDisplay(revision=revision, reason=reason, diff=patch):
            head = Text.assemble(
                ("memory ", "magenta"), (revision[:10], "yellow"), f" {plain_text(one_line(reason))}"
            )
            return Group(head, _patch(patch))
        case TodoDisplay(items=items):
            lines = (
                (
                    *_TODO_MARKS[todo.status],
                    todo.active_form if todo.status == "in_progress" else "",
                    todo.content,
                )
                for todo in items
            )
            return _stack(
                Text(f"{mark} {plain_text(one_line(active or content))}", style=style)
                for mark, style, active, content in lines
            )


def diff(path: str, before: str | None, after: str | None) -> RenderableType:
    """A change to a file: its size, then numbered lines, at most 40."""
    old, new = (before or "").splitlines(), (after or "").splitlines()
    rows: list[Text] = []
    added = removed = old_number = new_number = 0
    width = len(str(max(len(old), len(new), 1)))
    for line in difflib.unified_diff(old, new, n=2, lineterm=""):
        if line.startswith("@@"):
            old_number, new_number = _hunk_start(line)
            if rows:
                rows.append(Text(f"{'':>{width}} ⋮", style="dim"))
        elif old_number == 0 and new_number == 0:  # the two file header lines
            continue
        else:
            mark, number, style = line[0], new_number, ""
            if mark == "-":
                number, style = old_number, "red"
                removed += 1
            elif mark == "+":
                style = "green"
                added += 1
            old_number += mark != "+"
            new_number += mark != "-"
            shown = plain_text(line[1:]).expandtabs(4)[:_WIDTH]
            rows.append(Text.assemble((f"{number:>{width}} ", "dim"), (f"{mark} {shown}", style)))
    verb = "new" if before is None else "deleted" if after is None else "changed"
    head = Text(f"{plain_text(path)} ({verb}, +{added} -{removed})", style="dim")
    return _stack([head, *_cut(rows, _DIFF_LINES)])


def usage_line(done: TurnDone, window: int) -> RenderableType:
    """The line under a turn: steps, tokens, cost when known, time."""
    usage = done.usage
    parts = [
        f"{done.steps} step{'' if done.steps == 1 else 's'}",
        f"{count(usage.input + usage.cache_read + usage.cache_write)} in"
        + (f" ({count(usage.cache_read)} cached)" if usage.cache_read else ""),
        f"{count(usage.output)} out",
        f"{done.seconds:.1f} s",
    ]
    if done.cost_usd is not None:
        parts.append(f"${done.cost_usd:.4f}" if done.cost_usd < 1 else f"${done.cost_usd:.2f}")
    parts.append(f"window {count(window)}")
    return Text(" · ".join(parts), style="dim")


def error(message: str, hint: str = "") -> RenderableType:
    """One red line, and what helps below it."""
    rows = [Text(f"✗ {plain_text(message)}", style="red")]
    if hint:
        rows.append(Text(f"  {plain_text(hint)}", style="dim"))
    return _stack(rows)


def count(tokens: int) -> str:
    """A number of tokens for people: 950, 12.3k, 1.2M."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 999_950 else f"{tokens / 1_000_000:.1f}M"


def _command(item: CommandDisplay) -> RenderableType:
    output = item.output.rstrip()
    if not output and item.exit_code is None:  # not run yet: the whole command is what matters
        return _bounded(f"$ {item.command}", _DIFF_LINES, "")
    rows = [_bounded(output or "(no output)", _OUTPUT_LINES, "dim")]
    if item.exit_code and not output.lower().endswith(f"exit code {item.exit_code}"):
        rows.append(Text(f"exit code {item.exit_code}", style="red"))
    return Group(*rows)


def _bounded(text: str, lines: int, style: str) -> RenderableType:
    rows = [Text(line.expandtabs(8)[:_WIDTH], style=style) for line in plain_text(text).split("\n")]
    return _stack(_cut(rows, lines))


def _patch(patch: str) -> RenderableType:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    rows = [
        Text(line[:_WIDTH], style=styles.get(line[:1], "dim"))
        for line in plain_text(patch).splitlines()
        if not line.startswith(("diff --git ", "index ", "new file mode ", "--- ", "+++ "))
    ]
    return _stack(_cut(rows, _DIFF_LINES))


def _cut(rows: list[Text], limit: int) -> list[Text]:
    """Head and tail of `rows`, with a line that says how many are left out."""
    if len(rows) <= limit:
        return rows
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    left_out = Text(f"… {len(rows) - head - tail} more lines", style="dim italic")
    return [*rows[:head], left_out, *rows[-tail:]]


def _stack(rows: Iterable[Text]) -> RenderableType:
    return Text("\n").join(rows)


def _hunk_start(line: str) -> tuple[int, int]:
    old, new = line.split(" ")[1:3]
    # An empty side is written as "0,0"; its next line would be 1.
    return max(int(old[1:].split(",")[0]), 1), max(int(new[1:].split(",")[0]), 1)
