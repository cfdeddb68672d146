"""What the page of a memory shows (`letta memory view`), as values: files, problems, history with diffs.

Collected from one commit and the commits before it, within bounds that the page states. Secrets are masked
and characters that would steer a reader's eyes are written out here, so that no later step can forget it.
The HTML is made in `memory.page_html`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from letta_code.core.tokens import estimated_tokens
from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import Block, parse_block
from letta_code.memory.budget import measure
from letta_code.memory.git.log import diff as patch_between
from letta_code.memory.git.log import log
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.history import MemoryCommit
from letta_code.memory.page.diff import FileDiff, added_files, split_patch
from letta_code.memory.render import problems_of
from letta_code.memory.secrets import masked
from letta_code.memory.snapshot import MemorySnapshot, Problem

COMMITS = 500
"""Commits that the page shows."""

TEXT = 3_000_000
"""Characters of all files that the page holds; those of `system/` come first."""

MARKDOWN, MARKDOWN_FILE = 300_000, 60_000
"""Characters that are shown as formatted Markdown: of all files, of one. The rest is shown as it is."""

DIFFS, DIFF_LINES, DIFF_PATHS = 2_000_000, 400, 100
"""Characters of all diffs, lines of one commit's, and paths a commit may change to be shown with one."""

Where = Literal["always", "listed", "hidden", "skill"]

_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ORDER = {"always": 0, "hidden": 1, "skill": 2, "listed": 3}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file. `where` it reaches the model: in the prompt always, listed by name there, as a skill, not at
    all. `share` is its part of `system/` (0 to 1), `text` the whole file (None: it is no text, or was left
    out for its size: `left_out`), `formatted` the part that is shown as Markdown. `facts` are the front
    matter but its description, `commits` positions in the page's history, newest first."""

    number: int
    path: str
    where: Where
    size: int
    tokens: int
    share: float
    description: str
    facts: tuple[tuple[str, str], ...]
    problem: str
    text: str | None
    formatted: str | None
    left_out: bool
    commits: tuple[int, ...]
    unreviewed: int


@dataclass(frozen=True, slots=True)
class PageCommit:
    """One commit. `review` is "waits" when the person neither stated nor judged it."""

    revision: str
    title: str
    details: str
    who: str
    when: str
    source: str
    conversation: str
    review: Literal["", "waits", "accepted"]
    paths: tuple[str, ...]
    diffs: tuple[FileDiff, ...]
    left_out: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything the page says. `window` and `budget` are the model's window in tokens (0: not known) and
    the share of it that `system/` may take; `notes` say what is not on the page."""

    agent: str
    revision: str
    when: str
    window: int
    budget: float
    tokens: int
    files: tuple[PageFile, ...]
    problems: tuple[Problem, ...]
    history: tuple[PageCommit, ...]
    waiting: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class About:
    """What the memory itself does not know: whose it is, its model's window and budget, the commits that wait
    for the person's word (revisions), and notes to show."""

    agent: str
    window: int = 0
    budget: float = 0.1
    waiting: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def collect(repository: MemoryRepository, about: About) -> Page:
    """What the page of `repository` shows, of HEAD as it is now.

    Raises:
        MemoryStoreError: the repository is damaged.
    """
    snapshot = repository.snapshot()
    found = log(repository, COMMITS + 1, revision=snapshot.revision)
    commits = found[:COMMITS]
    notes = list(about.notes)
    if len(found) > COMMITS:
        notes.append(f"History: the last {COMMITS:,} commits. `letta memory log` has all.")
    files = _files(snapshot, commits, about.waiting, notes)
    return Page(
        agent=plain(about.agent),
        revision=snapshot.revision,
        when=_local(
            next((one.when for one in commits if one.revision == snapshot.revision), commits[0].when)
        ),
        window=about.window,
        budget=about.budget,
        tokens=measure(snapshot).total,
        files=files,
        problems=tuple(Problem(plain(p.path), plain(p.message)) for p in problems_of(snapshot)),
        history=_history(repository, commits, about.waiting, notes),
        waiting=sum(commit.revision in about.waiting for commit in commits),
        notes=tuple(notes),
    )


def plain(text: str) -> str:
    """`text` as it may be shown: secrets masked, control and direction characters written out."""
    return _STEERING.sub(_written_out, masked(text).replace("\r\n", "\n"))


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def _local(stamp: str) -> str:
    """Date and minute where the page is made."""
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M")


@dataclass(slots=True)
class _Room:
    """Characters that are left for texts of files, and for formatted ones."""

    text: int = TEXT
    markdown: int = MARKDOWN

    def holds(self, length: int) -> bool:
        if length > self.text:
            return False
        self.text -= length
        return True

    def formats(self, length: int) -> bool:
        if length > min(self.markdown, MARKDOWN_FILE):
            return False
        self.markdown -= length
        return True


def _files(
    snapshot: MemorySnapshot, commits: Iterable[MemoryCommit], waiting: frozenset[str], notes: list[str]
) -> tuple[PageFile, ...]:
    changed: dict[str, list[int]] = {}
    doubted: dict[str, int] = {}
    for position, commit in enumerate(commits):
        for path in commit.paths:
            changed.setdefault(path, []).append(position)
            doubted[path] = doubted.get(path, 0) + (commit.revision in waiting)
    tokens = {file.path: file.tokens for file in measure(snapshot).files}
    total = sum(tokens.values()) or 1
    problems = {problem.path: problem.message for problem in problems_of(snapshot)}
    read = [_Reading(snapshot, path, blob, tokens) for path, blob in snapshot.entries.items()]
    room, files = _Room(), []
    for number, one in enumerate(sorted(read, key=lambda one: (_ORDER[one.where], one.path)), 1):
        text, formatted = one.shown(room)
        left_out = one.readable and text is None
        files.append(
            PageFile(
                number=number,
                path=plain(one.path).replace("\n", "\\n").replace("\t", "\\t"),
                where=one.where,
                size=len(one.data),
                tokens=tokens.get(one.path) or one.tokens(text),
                share=tokens.get(one.path, 0) / total,
                description=plain(one.block.description) if one.block is not None and not left_out else "",
                facts=() if left_out else _facts(one.block) if one.readable else (("content", "not text"),),
                problem=plain(one.problem or problems.get(one.path, "")),
                text=text,
                formatted=formatted,
                left_out=left_out,
                commits=tuple(changed.get(one.path, ())),
                unreviewed=doubted.get(one.path, 0),
            )
        )
    _say_what_is_missing(files, notes)
    return tuple(sorted(files, key=lambda file: (not file.path.startswith("system/"), file.path)))


def _say_what_is_missing(files: Iterable[PageFile], notes: list[str]) -> None:
    missing = sum(file.left_out for file in files)
    bare = sum(
        file.text is not None and file.formatted is None and file.path.endswith(".md") and not file.problem
        for file in files
    )
    if missing:
        notes.append(f"{missing:,} files are named without their text: the page would be too large.")
    if bare:
        notes.append(f"{bare:,} Markdown files are shown as plain text: formatting them takes too long.")


class _Reading:
    """A file of the snapshot as it was read."""

    def __init__(self, snapshot: MemorySnapshot, path: str, blob: str, tokens: Mapping[str, int]) -> None:
        self.path = path
        self.data = snapshot.objects.blob(blob)
        self.block: Block | None = None
        self.problem = ""
        self._text = _text(path, self.data)
        if path.endswith(".md"):
            try:
                self.block = parse_block(path, self.data, blob)
            except MemoryEditError as error:
                self.problem = error.message.removeprefix(f"{path}: ")
        self.where = _where(path, path in tokens)

    @property
    def readable(self) -> bool:
        """Whether it is text."""
        return self._text is not None

    def tokens(self, shown: str | None) -> int:
        """About how many tokens it has; for a text that is not shown, by its size: that is quicker."""
        return estimated_tokens(shown) if shown is not None else len(self._text or "") // 4

    def shown(self, room: _Room) -> tuple[str | None, str | None]:
        """The whole text, and the part to format, as far as there is room."""
        if self._text is None or not room.holds(len(self._text)):
            return None, None
        body = self.block.body if self.block is not None else ""
        formatted = plain(body) if self.block is not None and room.formats(len(body)) else None
        return plain(self._text), formatted


def _text(path: str, data: bytes) -> str | None:
    """The text of a file; of a Markdown file with a few odd bytes too."""
    try:
        return None if b"\0" in data else data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace") if path.endswith(".md") else None


def _where(path: str, in_prompt: bool) -> Where:
    if in_prompt:
        return "always"
    if path.startswith("skills/"):
        return "skill"
    inside = path.removeprefix("system/")
    if path.startswith(".") or (inside != path and (inside.endswith(".md") or "/" in inside)):
        return "hidden"
    return "listed"


def _facts(block: Block | None) -> tuple[tuple[str, str], ...]:
    if block is None:
        return ()
    facts = []
    if block.limit is not None:
        facts.append(("limit", f"{len(block.body):,} of {block.limit:,} characters"))
    if block.read_only:
        facts.append(("read only", "for the agent"))
    if block.hidden:
        facts.append(("hidden", "not in the prompt"))
    for key, value in block.metadata.items():
        words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        facts.append((plain(str(key)), plain(words)))
    others = [
        key for key in block.keys if key not in ("description", "limit", "read_only", "hidden", "metadata")
    ]
    if others:
        facts.append(("other keys", plain(", ".join(others))))
    return tuple(facts)


def _history(
    repository: MemoryRepository,
    commits: Iterable[MemoryCommit],
    waiting: frozenset[str],
    notes: list[str],
) -> tuple[PageCommit, ...]:
    left, history, without = DIFFS, [], 0
    for commit in commits:
        diffs, left_out = _diffs(repository, commit) if left > 0 else ((), "The page has no room for it.")
        left -= sum(len(line.text) for one in diffs for line in one.lines)
        without += left <= 0
        title, _, details = plain(commit.reason).partition("\n")
        review: Literal["", "waits", "accepted"] = "accepted" if "Letta-Reviewed" in commit.trailers else ""
        history.append(
            PageCommit(
                revision=commit.revision,
                title=title,
                details=details.strip(),
                who=plain(commit.author_name),
                when=_local(commit.when),
                source=plain(commit.trailers.get("Letta-Source", "")),
                conversation=plain(commit.trailers.get("Letta-Conversation", "")),
                review="waits" if commit.revision in waiting else review,
                paths=tuple(plain(path) for path in commit.paths[:DIFF_PATHS]),
                diffs=diffs,
                left_out=left_out,
            )
        )
    if without:
        notes.append(f"{without:,} older commits are shown without their diff: the page would be too large.")
    return tuple(history)


def _diffs(repository: MemoryRepository, commit: MemoryCommit) -> tuple[tuple[FileDiff, ...], str]:
    if len(commit.paths) > DIFF_PATHS:
        return (), f"It changes {len(commit.paths):,} files; the first {DIFF_PATHS} are named."
    if not commit.paths:
        return (), ""
    if commit.parent:
        diffs = split_patch(plain(patch_between(repository, commit.parent, commit.revision)))
    else:
        snapshot = repository.snapshot(commit.revision)
        texts = {
            plain(path): plain(snapshot.objects.blob(entry.id).decode("utf-8", "replace"))
            for path in commit.paths
            if (entry := snapshot.find(path)) is not None and entry.kind == "file"
        }
        diffs = added_files(texts)
    kept, left = [], DIFF_LINES
    for one in diffs:
        kept.append(one.cut(left))
        left -= min(left, len(one.lines))
    cut = sum(len(one.lines) for one in diffs) - sum(len(one.lines) for one in kept)
    return tuple(kept), f"{cut:,} more lines: `letta memory diff` has them." if cut else ""
