"""Find the text a model wants replaced, and replace only what differs.

Works on decoded text with its line endings as they are in the file. A model sees and writes LF; here
`\\r\\n` counts as one line break, and breaks that are inserted follow their neighbours. Does no I/O.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from dataclasses import dataclass

from letta_code.errors import ToolError

_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\uff07", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\uff02", '"'),
        **dict.fromkeys("\u00a0\u2007\u202f", " "),
    }
)
"""Characters that models swap for their ASCII twins; one for one, so that positions stay."""

_LINE_DIFF_LIMIT = 2_000  # lines; above it only the common head and tail of the two texts are kept


@dataclass(frozen=True, slots=True)
class Replaced:
    """A text after replacing. `lines` are the 1-based numbers, in the new text, where each replacement
    begins; `span` is how many lines the first one has; `added` is what was put in, for the check
    against the file's encoding; `lenient` says that typographic twins were taken as equal."""

    text: str
    lines: tuple[int, ...]
    span: int
    added: str
    lenient: bool


class View:
    """A text as the model sees it: every line break is one `\\n`. Positions map back to the file's."""

    def __init__(self, text: str) -> None:
        self.raw = text
        self._joined: list[int] = []
        self.classic = "\r" in text and "\n" not in text  # breaks are lone carriage returns
        if "\r\n" in text:
            start = text.find("\r\n")
            while start >= 0:
                self._joined.append(start - len(self._joined))
                start = text.find("\r\n", start + 2)
            self.text = text.replace("\r\n", "\n")
        else:
            self.text = text.replace("\r", "\n") if self.classic else text

    def raw_position(self, position: int) -> int:
        """Where in the file's text this position of the view is."""
        return position + bisect_left(self._joined, position)

    def piece(self, start: int, end: int) -> str:
        """The file's own text of a stretch of the view."""
        return self.raw[self.raw_position(start) : self.raw_position(end)]

    def line_of(self, position: int) -> int:
        """1-based line number."""
        return self.text.count("\n", 0, position) + 1

    def break_near(self, position: int) -> str:
        """The line break that a line inserted here should get: that of its line, else the one before."""
        at = self.text.find("\n", position)
        if at < 0:
            at = self.text.rfind("\n", 0, position)
        return "\n" if at < 0 else self.piece(at, at + 1)


def replace(text: str, old: str, new: str, *, everywhere: bool) -> Replaced:
    """Replace `old` (not empty) by `new`: its only occurrence, or all of them.

    Line endings count as equal; when nothing matches so, typographic quotes and no-break spaces match
    their ASCII twins, if that gives exactly one place. Where `old` and `new` agree, the file's own
    characters stay.

    Raises:
        ToolError: not there (with what comes close), there several times (with the lines), or the
            replacement changes nothing.
    """
    view = View(text)
    if "\r" in text or "\r\n" in old:  # else a carriage return in `new` is meant as such
        old, new = _as_seen(old, view), _as_seen(new, view)
    if old == new:
        raise ToolError(
            "old_string and new_string are the same (line endings are kept as they are): nothing to change"
        )
    found = _positions(view.text, old)
    lenient = False
    if not found:
        found = _positions(view.text.translate(_TYPOGRAPHIC), old.translate(_TYPOGRAPHIC))
        lenient = bool(found)
    if not found:
        raise ToolError(f"old_string is not in the file. {_hint(view.text, old)}".rstrip())
    if len(found) > 1 and (lenient or not everywhere):
        raise ToolError(_ambiguous(view, found, lenient))
    return _splice(view, found, old, new, lenient)


def _as_seen(text: str, view: View) -> str:
    text = text.replace("\r\n", "\n")
    return text.replace("\r", "\n") if view.classic else text


def _positions(text: str, old: str) -> list[int]:
    found = []
    at = text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _ambiguous(view: View, found: list[int], lenient: bool) -> str:
    numbers = [str(view.line_of(at)) for at in found[:10]]
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    twins = " (apart from typographic quotes or no-break spaces)" if lenient else ""
    cure = "copy the exact characters" if lenient else "or set replace_all"
    return (
        f"old_string is in the file {len(found)} times{twins}, at lines {', '.join(numbers)}{more}; nothing "
        f"was changed. Give more surrounding lines to make it unique, {cure}."
    )


def _splice(view: View, found: list[int], old: str, new: str, lenient: bool) -> Replaced:
    pieces: list[str] = []
    added: list[str] = []
    lines: list[int] = []
    number, done, span = 1, 0, 1
    for at in found:
        kept = view.piece(done, at)
        region, inserted = _merge(view, at, old, new, lenient)
        pieces += (kept, region)
        added.append(inserted)
        number += view.text.count("\n", done, at)
        lines.append(number)
        breaks = View(region).text.count("\n")
        span = span if len(lines) > 1 else breaks + 1
        number += breaks
        done = at + len(old)
    pieces.append(view.raw[view.raw_position(done) :])
    text = "".join(pieces)
    if text == view.raw:
        raise ToolError("the edit changes nothing: the file already reads so")
    return Replaced(text, tuple(lines), span, "".join(added), lenient)


def _merge(view: View, at: int, old: str, new: str, lenient: bool) -> tuple[str, str]:
    """The new text of the region at `at`, and the part of it that did not come from the file."""
    kept_old, kept_new = (old.translate(_TYPOGRAPHIC), new.translate(_TYPOGRAPHIC)) if lenient else (old, new)
    olds, news = kept_old.split("\n"), kept_new.split("\n")
    if max(len(olds), len(news)) > _LINE_DIFF_LIMIT:
        blocks = [("replace", 0, len(olds), 0, len(news))]
    else:
        blocks = list(difflib.SequenceMatcher(None, olds, news, autojunk=False).get_opcodes())
    old_starts, new_starts = _starts(olds), _starts(news)
    region: list[str] = []
    added: list[str] = []
    for kind, i, j, k, m in blocks:
        a, b = min(old_starts[i], len(old)), min(old_starts[j], len(old))
        c, d = min(new_starts[k], len(new)), min(new_starts[m], len(new))
        if kind == "equal":
            # The last line of one side has no break of its own where the other side's has one.
            length = min(b - a, d - c)
            region.append(view.piece(at + a, at + a + length))
            extra, tail = new[c + length : d], 0
        else:
            head, tail = _common(kept_old[a:b], kept_new[c:d])
            region.append(view.piece(at + a, at + a + head))
            extra = new[c + head : d - tail]
        fresh = _with_breaks(view, at + a, at + b, extra)
        added.append(extra)
        region.append(fresh)
        if tail:
            region.append(view.piece(at + b - tail, at + b))
    return "".join(region), "".join(added)


def _starts(lines: list[str]) -> list[int]:
    """Where each line begins in the joined text, and one past the end."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _common(old: str, new: str) -> tuple[int, int]:
    """Lengths of the common head and of the common tail, not overlapping."""
    limit = min(len(old), len(new))
    head = 0
    while head < limit and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < limit - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _with_breaks(view: View, start: int, end: int, text: str) -> str:
    """`text` with its bare line breaks spelled like those it takes the place of or stands beside."""
    if "\n" not in text or "\r" in text:
        return text
    own = [at for at in range(start, end) if view.text[at] == "\n"]
    breaks = [view.piece(at, at + 1) for at in own] or [view.break_near(start)]
    parts = text.split("\n")
    result = [parts[0]]
    for index, part in enumerate(parts[1:]):
        result += (breaks[min(index, len(breaks) - 1)], part)
    return "".join(result)


def _hint(text: str, old: str) -> str:
    """What comes close to `old`, for the model to correct itself."""
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    if all(line.split("\t")[0].strip().isdigit() for line in wanted if line.strip()) and "\t" in old:
        return "Leave out the line numbers and tabs that Read puts before each line."
    if len(lines) > 100_000:
        return "Read the place again and copy it exactly."
    squeezed = ["".join(line.split()) for line in wanted]
    candidates = ["".join(line.split()) for line in lines]
    for start in range(len(lines) - len(wanted) + 1):
        if candidates[start : start + len(wanted)] == squeezed and any(squeezed):
            return "It is there but for white space:\n" + numbered(lines, start, start + len(wanted))
    longest = max(wanted, key=lambda line: len(line.strip()))
    near = difflib.get_close_matches(longest, dict.fromkeys(lines[:5_000]), n=2, cutoff=0.6)
    if not near:
        return "No similar line was found; Read the file again."
    shown = [numbered(lines, at, at + 1) for at in sorted(lines.index(line) for line in near)]
    return "Closest lines:\n" + "\n".join(shown)


def numbered(lines: list[str], start: int, end: int, limit: int = 20, width: int = 300) -> str:
    """Lines `start` to `end` (0-based, end excluded) as Read shows them, long ones and many cut."""
    shown = []
    for index in range(start, min(end, start + limit)):
        line = lines[index].rstrip("\r")
        shown.append(f"{index + 1}\t{line if len(line) <= width else line[:width] + ' […]'}")
    if end > start + limit:
        shown.append(f"[… {end - start - limit} more lines]")
    return "\n".join(shown)
