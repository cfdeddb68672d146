"""A project's `overview.md` as a conversation gets it: bounded, quoted, in its own element. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from letta_code.errors import MemoryEditError
from letta_code.memory.render import escaped
from letta_code.memory.scope import OVERVIEW, PROJECTS, overview_path
from letta_code.memory.snapshot import MemorySnapshot

LIMIT = 8_000
"""Characters of an overview that a conversation begins with; a longer one is cut after a whole line."""

TAG = "project_memory"
"""The element that an overview is in."""


@dataclass(frozen=True, slots=True)
class Overview:
    """An overview: where it is, the blob it was read from, its bounded body, and its text for the model."""

    path: str
    blob: str
    body: str
    text: str


def overview_of(snapshot: MemorySnapshot, slug: str) -> Overview | None:
    """The overview of the project `slug`; None when it has none or is empty.

    One that cannot be read is told as such. The text's first line is `marker`.
    """
    path = overview_path(slug)
    entry = snapshot.find(path)
    if entry is None or entry.kind != "file":
        return None
    try:
        block = snapshot.objects.block(path, entry.id)
    except MemoryEditError as error:
        body = f"[it cannot be read: {error.message}]"
    else:
        body = _bounded(block.body)
    if not body:
        return None
    text = (
        f"{marker(path, entry.id)}\n"
        "What you know of this project, as it was when it was written:\n"
        f"{escaped(body, TAG, 'system-reminder')}\n</{TAG}>"
    )
    return Overview(path, entry.id, body, text)


def marker(path: str, blob: str) -> str:
    """The first line of an overview's text, by which a conversation that has it is known."""
    return f'<{TAG} file="$MEMORY_DIR/{path}" blob="{blob[:12]}">'


def cut_overviews(snapshot: MemorySnapshot) -> Iterator[tuple[str, int]]:
    """Overviews that a conversation does not get whole: path, and characters of the body."""
    folder = snapshot.find(PROJECTS.rstrip("/"))
    if folder is None or folder.kind != "folder":
        return
    for project in snapshot.objects.folder(folder.id):
        path = f"{PROJECTS}{project.name}/{OVERVIEW}"
        entry = snapshot.find(path)
        if entry is None or entry.kind != "file":
            continue
        try:
            size = len(snapshot.objects.block(path, entry.id).body.strip())
        except MemoryEditError:
            continue
        if size > LIMIT:
            yield path, size


def _bounded(body: str) -> str:
    text = body.strip()
    if len(text) <= LIMIT:
        return text
    kept = text[:LIMIT]
    kept = kept[: kept.rfind("\n") + 1] or kept
    return (
        f"{kept.rstrip()}\n[cut here: {len(kept):,} of {len(text):,} characters; Read the file for the rest]"
    )
