"""The files in which people keep rules for coding agents, and what they include. Which of them count for one
project and which for all is decided in `kinds`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from letta_code.memory.importing.sources import Gathered, read_file, read_folder

RULES = {
    "CLAUDE.md": "CLAUDE.md",
    "CLAUDE.local.md": "CLAUDE.local.md",
    ".claude/CLAUDE.md": "claude/CLAUDE.md",
    "AGENTS.md": "AGENTS.md",
    "GEMINI.md": "GEMINI.md",
    ".cursorrules": "cursorrules.md",
    ".github/copilot-instructions.md": "copilot-instructions.md",
    ".windsurfrules": "windsurfrules.md",
}
"""Path in a project to the name in memory."""

RULE_FOLDERS = {
    ".cursor/rules/": "cursor/",
    ".claude/rules/": "claude/rules/",
    ".windsurf/rules/": "windsurf/",
    "rules/": "rules/",
}
"""Folders with one rule in each file; the last one is in `~/.claude` alone."""

USER_FOLDERS = {".claude": "CLAUDE.md", ".gemini": "GEMINI.md", ".codex": "AGENTS.md"}
"""Folders of the home folder, and the file of rules that hold everywhere."""

_DEPTH = 5  # of files that include others, as Claude Code has it
_FENCED = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_INCLUDE = re.compile(r"(?:^|(?<=\s))@(?P<path>[^\s`'\"()\[\]{}<>,;]+)")
_CLAUDE = ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md")


def rule_target(path: str) -> str | None:
    """The name in memory of a rules file, by its path in the project; None when it is none."""
    if path in RULES:
        return RULES[path]
    for folder, target in RULE_FOLDERS.items():
        if path.startswith(folder) and path.endswith((".md", ".mdc")):
            return target + path[len(folder) :].rsplit(".", 1)[0] + ".md"
    return None


def gather_rules(root: Path, user: bool) -> Gathered:
    """The rules files of a project, or of a folder of the home folder, and what they include."""
    gathered = Gathered()
    for path in list(USER_FOLDERS.values()) if user else RULES:
        read_file(root, path, gathered)
    for folder in RULE_FOLDERS:
        if (folder == "rules/") == user and (root / folder).is_dir():
            _gather_folder(root, folder, gathered)
    add_includes(root, gathered)
    return gathered


def add_includes(root: Path, gathered: Gathered) -> None:
    """Add the files that the CLAUDE.md files among `gathered` include by `@path`; what cannot be taken in
    is noted."""
    waiting = [(path, 0) for path in gathered.files if path in _CLAUDE]
    known = set(gathered.files)
    while waiting:
        path, depth = waiting.pop(0)
        for given in _includes(gathered.files[path]):
            named = os.path.normpath(os.path.join(os.path.dirname(path), given))
            if given.startswith(("/", "~")) or named.startswith(".."):
                gathered.skip(f"@{given}", f"included by {path}, but outside its folder: import it by itself")
            elif named in known:
                continue
            elif not (root / named).is_file():
                if given.endswith(".md"):
                    gathered.skip(f"@{given}", f"included by {path}, but not there")
            elif depth >= _DEPTH:
                gathered.skip(f"@{given}", "included too deep")
            else:
                known.add(named)
                read_file(root, named, gathered)
                if named in gathered.files:
                    waiting.append((named, depth + 1))


def _gather_folder(root: Path, folder: str, gathered: Gathered) -> None:
    found = read_folder(
        root / folder, lambda p: None if p.endswith((".md", ".mdc", "/")) else "is no Markdown file"
    )
    for path, data in found.files.items():
        gathered.take(folder + path, data)
    for one in found.skipped:
        gathered.skip(folder + one.path, one.why)


def _includes(data: bytes) -> Iterator[str]:
    text = _FENCED.sub(" ", data.decode("utf-8", "replace"))
    for match in _INCLUDE.finditer(text):
        path = match["path"].rstrip(".:!?*")
        if path and path not in (".", ".."):
            yield path
