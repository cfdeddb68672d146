"""Searches as ripgrep runs: where they look, and what they print as values.

Used by `search`, which words it for the model.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

from letta_code.tools.encoding import printable
from letta_code.tools.ripgrep import TIMEOUT, Ripgrep

_UNRESTRICTED_TIMEOUT = 5.0  # seconds: only to count what was hidden
_LINE_LIMIT = 500  # characters of a matching line
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
_REPOSITORY_FOLDERS = (".git", ".hg", ".svn", ".jj")

PathTest = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a search looks: in `folder`, at `target` ("." or one file of it).

    `everything`: no ignore rules, because the person or model named a place that they hide.
    """

    folder: Path
    target: str
    everything: bool
    repositories: bool
    environment: Mapping[str, str]
    timeout: float = TIMEOUT

    def unrestricted(self) -> Scope:
        """The same place without ignore rules, for a shorter time."""
        return replace(self, everything=True, timeout=_UNRESTRICTED_TIMEOUT)

    def run(self, options: list[str]) -> Ripgrep:
        """A ripgrep run here."""
        rules = ["--no-ignore"] if self.everything else ["--no-require-git", "--no-ignore-messages"]
        skipped = [] if self.repositories else [f"--glob=!{name}" for name in _REPOSITORY_FOLDERS]
        arguments = ["--hidden", *rules, *skipped, *options, "--", f"./{self.target}"]
        return Ripgrep(arguments, self.folder, self.environment, self.timeout)


def scope_of(path: Path, project: Path, environment: Mapping[str, str]) -> Scope:
    """The scope of a search at `path` (resolved, exists)."""
    inside = any(name in path.parts for name in _REPOSITORY_FOLDERS)
    if not path.is_dir():
        return Scope(path.parent, path.name, True, inside, environment)
    return Scope(path, "", path != project and _is_ignored(path), inside, environment)


def _is_ignored(folder: Path) -> bool:
    """Whether ignore rules of the folders above hide what is in `folder`."""
    probe = folder / "probe"
    verdict = False
    above: list[Path] = []
    for parent in folder.parents:
        above.append(parent)
        if (parent / ".git").exists():
            break
    for parent in reversed(above):
        relative = probe.relative_to(parent).as_posix()
        files = [parent / name for name in _IGNORE_FILES] + [parent / ".git" / "info" / "exclude"]
        for file in files:
            try:
                lines = file.read_text("utf-8", "replace").splitlines()
            except OSError:
                continue
            include = GitIgnoreSpec.from_lines(lines).check_file(relative).include
            verdict = verdict if include is None else include
    return verdict


async def listing(scope: Scope, options: list[str], test: PathTest) -> tuple[list[str], str]:
    """Paths relative to the scope's folder, sorted, from a run that prints NUL-separated paths; and why
    the list is not complete."""
    run = scope.run(options)
    found = []
    async with aclosing(run.records(b"\0")) as records:
        async for record in records:
            path = _path(record)
            if test(path):
                found.append(path)
    return sorted(found, key=os.fsencode), run.cut


async def counts(scope: Scope, options: list[str], test: PathTest) -> tuple[list[tuple[str, int]], str]:
    """How many lines match in each file, sorted by path; and why the list is not complete."""
    run = scope.run(["--count", "--null", "--with-filename", *options])
    found: list[tuple[str, int]] = []
    path = ""
    async with aclosing(run.records(b"\0")) as records:
        async for record in records:  # path NUL count newline path NUL …
            if path:
                number, _, record = record.partition(b"\n")
                if test(path) and number.isdigit():
                    found.append((path, int(number)))
            path = _path(record) if record else ""
    return sorted(found, key=lambda entry: os.fsencode(entry[0])), run.cut


async def content_lines(
    scope: Scope,
    options: list[str],
    test: PathTest,
    around: tuple[int, int],
    limit: int,
    label: Callable[[str, int | None, str], str],
) -> tuple[list[str], list[str] | None, str]:
    """Up to `limit` matching lines (with `around` lines before and after, `--` between groups).

    Also the files that match (None when the limit ended the search), and why it is not complete.
    """
    extra = ["--json", "--sort=path", f"--before-context={around[0]}", f"--after-context={around[1]}"]
    run = scope.run([*extra, *options])
    entries: list[str] = []
    files: list[str] = []
    last: tuple[str, int] = ("", 0)
    async with aclosing(run.records(b"\n")) as records:
        async for record in records:
            event = json.loads(record)
            kind, data = event["type"], event["data"]
            if kind not in ("match", "context"):
                continue
            path = _path(_bytes(data["path"]))
            if not test(path):
                continue
            if kind == "match" and (not files or files[-1] != path):
                files.append(path)
            number = data["line_number"] or 0
            if any(around) and entries and (path, number) != (last[0], last[1] + 1):
                entries.append("--")
            for index, line in enumerate(_shown_lines(data)):
                entries.append(label(path, number + index, ":" if kind == "match" else "-") + line)
                last = (path, number + index)
            if len(entries) >= limit:
                return entries[:limit], None, ""
    return entries, files, run.cut


def _shown_lines(data: dict[str, Any]) -> list[str]:
    raw = _bytes(data["lines"]).removesuffix(b"\n")
    first = data["submatches"][0]["start"] if data.get("submatches") else 0
    lines = raw.split(b"\n")
    return [_cut(line, first if index == 0 else 0) for index, line in enumerate(lines)]


def _cut(raw: bytes, match: int) -> str:
    text = printable(raw.removesuffix(b"\r").decode("utf-8", "replace"))
    if len(text) <= _LINE_LIMIT:
        return text
    at = len(raw[:match].decode("utf-8", "replace"))
    start = max(0, min(at - _LINE_LIMIT // 4, len(text) - _LINE_LIMIT))
    end = start + _LINE_LIMIT
    return f"[…]{text[start:end]}[… characters {start} to {end} of {len(text):,}]"


def _bytes(value: dict[str, str]) -> bytes:
    """A string of ripgrep's JSON, which is base64 where it is not UTF-8."""
    return value["text"].encode("utf-8") if "text" in value else base64.b64decode(value["bytes"])


def _path(raw: bytes) -> str:
    return os.fsdecode(raw.removeprefix(b"./"))
