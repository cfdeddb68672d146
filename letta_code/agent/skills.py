"""Which skills the model is told of: the `<available_skills>` text of a session.

A skill is a folder with a `SKILL.md`. Where two have one name, the nearer place wins: memory, project,
user, built in. Bodies are not here; the model reads the file when it needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.core.text import one_line, well_formed
from letta_code.errors import MemoryEditError, MemoryStoreError
from letta_code.paths import Paths

if TYPE_CHECKING:
    from letta_code.memory.snapshot import MemorySnapshot

_FILE = "SKILL.md"
_MOST = 200  # skills of one place
_BYTES = 1_000_000  # a larger SKILL.md is not one


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill: its name (the folder below the place it was found in), one line that says when to use
    it, and where to read it."""

    name: str
    summary: str
    location: str


def available_skills(paths: Paths, project: Path, snapshot: MemorySnapshot | None) -> str:
    """The text for the request, "" when there are no skills. The same folders give the same bytes."""
    found: dict[str, Skill] = {}
    places = (*_memory_skills(snapshot),)
    for skill in places:
        found.setdefault(skill.name, skill)
    folders = (project / ".agents" / "skills", project / ".skills", paths.user_skills(), builtin_folder())
    for folder in folders:
        for skill in _folder_skills(folder):
            found.setdefault(skill.name, skill)
    return render(tuple(found[name] for name in sorted(found)))


def builtin_folder() -> Path:
    """The skills that come with the program: inside the installed package, or beside it in a checkout."""
    package = Path(str(files("letta_code")))
    installed = package / "builtin_skills"
    return installed if installed.is_dir() else package.parent / "skills"


def render(skills: tuple[Skill, ...]) -> str:
    """The text that lists `skills`."""
    if not skills:
        return ""
    lines = [_safe(f"- {skill.name}: {skill.summary} ({skill.location})") for skill in skills]
    return "\n".join(
        [
            "<available_skills>",
            "Read a skill's file before you do what it is for.",
            *lines,
            "</available_skills>",
        ]
    )


def _safe(text: str) -> str:
    return well_formed(one_line(text, 600)).replace("<", "&lt;")


def _folder_skills(folder: Path) -> Iterator[Skill]:
    try:
        candidates = sorted(folder.glob(f"*/{_FILE}"))[:_MOST]
    except OSError:
        return
    for path in candidates:
        try:
            if not path.is_file() or path.stat().st_size > _BYTES:
                continue
            data = path.read_bytes()
        except OSError:
            continue
        yield Skill(path.parent.name, _summary(str(path), data), str(path))


def _memory_skills(snapshot: MemorySnapshot | None) -> Iterator[Skill]:
    root = snapshot.find("skills") if snapshot is not None else None
    if snapshot is None or root is None or root.kind != "folder":
        return
    for entry in snapshot.objects.folder(root.id)[:_MOST]:
        path = f"skills/{entry.name}/{_FILE}"
        try:
            data = snapshot.read(path)
        except MemoryStoreError:
            continue
        yield Skill(entry.name, _summary(path, data), f"$MEMORY_DIR/{path}")


def _summary(path: str, data: bytes) -> str:
    from letta_code.memory.blocks import parse_block

    try:
        return parse_block(path, data).summary or "no description"
    except MemoryEditError:
        return "its front matter cannot be read"
