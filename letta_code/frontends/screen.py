"""The chat's translation of events into what is printed. Holds only what the running turn still needs:
words not yet printed, and whether they are void."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from letta_code.core.events import (
    AnswerBroken,
    ApprovalAsked,
    ApprovalGiven,
    Compacted,
    Event,
    FallbackUsed,
    MemoryChanged,
    MessageDone,
    Notice,
    PromptReady,
    Retrying,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolRunning,
    TurnDone,
)
from letta_code.core.messages import Text, Thinking
from letta_code.core.text import one_line
from letta_code.core.tooling import CommitDisplay, Display
from letta_code.frontends import show
from letta_code.frontends.compaction import compacted_line
from letta_code.frontends.output import plain_text


@dataclass(slots=True)
class Stream:
    """Markdown as it arrives, given out in blocks that will not change any more: a block ends after a blank
    line outside a fence, when no list or quote goes on behind it. Looks at every character once."""

    _lines: list[str] = field(default_factory=list)
    _line: list[str] = field(default_factory=list)  # the pieces of the line that has not ended
    _fence: str = ""
    _after_blank: bool = False

    def feed(self, text: str) -> str:
        """Take `text`; returns the finished blocks, or nothing yet."""
        finished: list[str] = []
        for piece in text.splitlines(keepends=True):
            self._line.append(piece)
            if self._after_blank and piece.strip():
                self._after_blank = False
                if not _continues(self._line[0]):
                    finished += self._lines
                    self._lines.clear()
            if piece.endswith("\n"):
                self._end_line()
        return "".join(finished)

    def flush(self) -> str:
        """What is left."""
        rest = "".join((*self._lines, *self._line))
        self._lines.clear()
        self._line.clear()
        self._fence, self._after_blank = "", False
        return rest

    def _end_line(self) -> None:
        line = "".join(self._line)
        self._line.clear()
        self._lines.append(line)
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            mark = stripped[0] * (len(stripped) - len(stripped.lstrip(stripped[0])))
            if not self._fence:
                self._fence = mark
            elif stripped == mark and mark.startswith(self._fence):
                self._fence = ""
        self._after_blank = not stripped and not self._fence


def _continues(line: str) -> bool:
    return line[0] in " \t>-*+" or line[0].isdigit()


class Screen:
    """Prints a session's turns on `console`. `log_file` is named when a bug is shown."""

    def __init__(self, console: Console, log_file: Path) -> None:
        self._console = console
        self._log_file = log_file
        self._stream = Stream()
        self._thought = ""
        self._streamed = False
        self._titles: dict[str, str] = {}
        self._last_title = ""
        self._asked: dict[str, tuple[Display, ...]] = {}
        self._revision = ""

    def show(self, event: Event, window: int) -> None:
        """Print what `event` means to the person. `window` is the model's, in tokens."""
        if isinstance(event, ThinkingDelta):
            self._thought += event.text
            self._streamed = True
            return
        self._end_thought()
        match event:
            case StepStarted():
                self._streamed = False
            case TextDelta(text=text):
                self._streamed = True
                self._words(self._stream.feed(text))
            case MessageDone(message=message):
                self._message(message.blocks)
            case AnswerBroken(reason=reason):
                self._broken(reason)
            case Retrying(attempt=attempt, wait=wait, reason=reason):
                self._streamed = False
                self._warn(f"retry {attempt} in {wait:.0f} s: {one_line(reason, 200)}")
            case FallbackUsed(model=model, instead_of=main, reason=reason):
                self._streamed = False
                self._warn(f"{main} stays out of reach ({one_line(reason, 200)}); {model} goes on")
            case Compacted():
                self._streamed = False
                self._dim(f"⊖ {compacted_line(event)}")
            case ToolRunning(call=call, title=title):
                self._titles[call.id] = title
                self._last_title = call.id
                self._console.print(show.tool_title(title))
            case ToolDone():
                self._tool_done(event)
            case ApprovalAsked(request=request):
                self._asked[request.call_id] = request.display
            case ApprovalGiven(decision=decision) if decision.choice == "always":
                self._dim("allowed for this session")
            case MemoryChanged(commit=commit) if commit.revision != self._revision:
                self._dim(f"memory is now {commit.revision[:10]}: {plain_text(one_line(commit.reason))}")
            case PromptReady(problems=problems):
                for problem in problems:
                    self._warn(f"memory: {problem}")
            case Notice(level="warning", text=text):
                self._warn(text)
            case Notice(text=text):
                self._dim(plain_text(text))
            case TurnDone():
                self._turn_done(event, window)
            case _:
                pass

    def settle(self) -> None:
        """Print what is still held back, before something else takes the terminal."""
        self._end_thought()
        self._words(self._stream.flush())

    def _message(self, blocks: tuple[object, ...]) -> None:
        if self._streamed:
            self._words(self._stream.flush())
            return
        for block in blocks:  # a server that does not stream
            if isinstance(block, Thinking) and block.text.strip():
                self._console.print(show.thinking(block.text))
            elif isinstance(block, Text):
                self._words(block.text)

    def _tool_done(self, event: ToolDone) -> None:
        title = self._titles.pop(event.call_id, None)
        asked = self._asked.pop(event.call_id, ())
        new = tuple(item for item in event.output.display if item not in asked)
        body = show.tool_output(dataclasses.replace(event.output, display=new), event.seconds)
        # A call that never ran has no title yet; one that ran beside others has its own far above.
        if title is None or (body is not None and self._last_title != event.call_id):
            self._console.print(show.tool_title(title or event.name))
        if body is not None:
            self._console.print(body)
            self._console.print()
            self._last_title = ""
        for item in new:
            if isinstance(item, CommitDisplay):
                self._revision = item.revision

    def _turn_done(self, done: TurnDone, window: int) -> None:
        self._words(self._stream.flush())
        self._titles.clear()
        self._asked.clear()
        error = done.error
        if done.status == "interrupted":
            self._console.print(show.error("interrupted", "what was done so far is kept; go on as you like"))
        elif done.status == "max_turns":
            self._console.print(show.error(f"stopped after {done.steps} model requests", "say: go on"))
        elif error is not None and error.kind == "bug":
            self._console.print(
                show.error(f"a bug in Letta Code: {error.message}", f"its traceback is in {self._log_file}")
            )
        elif error is not None:
            hint = error.hint or ("try again in a while" if error.retryable else "")
            self._console.print(show.error(error.message, hint))
        self._console.print(show.usage_line(done, window))
        self._console.print()

    def _broken(self, reason: str) -> None:
        """Mark where an answer broke off, so that what comes next does not read as its rest."""
        self._words(self._stream.flush())
        self._streamed = False
        self._warn(f"⋯ broken off here ({one_line(reason, 200)}); the unfinished answer above does not count")

    def _words(self, text: str) -> None:
        if text.strip():
            self._console.print(show.markdown(text))
            self._console.print()

    def _end_thought(self) -> None:
        thought, self._thought = self._thought, ""
        if thought.strip():
            self._console.print(show.thinking(thought))

    def _dim(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False)

    def _warn(self, text: str) -> None:
        self._console.print(plain_text(text), style="yellow", markup=False, highlight=False)
