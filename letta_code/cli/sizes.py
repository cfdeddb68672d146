"""How memory's size is shown: a line for each scope, a bar for each file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from letta_code.cli.show import label

if TYPE_CHECKING:
    from letta_code.agent.projects import Project
    from letta_code.agent.state import AgentState
    from letta_code.cli.place import Place
    from letta_code.memory.budget import Budget
    from letta_code.memory.snapshot import MemorySnapshot

_BAR = 20  # columns
_FILES = 15


def window_of(place: Place, state: AgentState, last: str = "") -> int:
    """The window (tokens) of the model `last`, else the one that is set for the agent or in general; 0
    when none is known."""
    from letta_code.models.catalog import model_info

    provider, _, name = (last or state.model or place.settings().model or "").partition("/")
    info = model_info(provider, name) if name else None
    return info.window if info is not None and info.known else 0


def memory_lines(
    snapshot: MemorySnapshot, budget: Budget, project: Project | None, window: int, share: float
) -> list[str]:
    """Both scopes of memory with their sizes, and what is too large."""
    from letta_code.memory.budget import pressure

    lines = [f"every project  {size_line(budget, window, share)}"]
    width = max((len(label(file.path)) for file in budget.files[:_FILES]), default=0)
    for file in budget.files[:_FILES]:
        part = file.tokens / budget.total if budget.total else 0
        filled = round(part * _BAR)
        limit = f"  {file.characters:,} of {file.limit:,} characters" if file.limit is not None else ""
        bar = "█" * filled + "░" * (_BAR - filled)
        lines.append(f"  {label(file.path):<{width}}  {bar} {part:4.0%} {file.tokens:>7,}{limit}")
    if len(budget.files) > _FILES:
        lines.append(f"  … {len(budget.files) - _FILES:,} smaller files")
    lines.append(f"this project   {_project_line(snapshot, project)}")
    lines += [f"warning: {label(line)}" for line in pressure(budget, window, share)]
    return lines


def size_line(budget: Budget, window: int, share: float) -> str:
    """What `system/` takes, in one line."""
    of_window = f", {budget.total / window:.1%} of the window (budget {share:.0%})" if window else ""
    count = len(budget.files)
    return f"system/: about {budget.total:,} tokens in {count} file{'' if count == 1 else 's'}{of_window}"


def memory_data(
    snapshot: MemorySnapshot, budget: Budget, project: Project | None, window: int, share: float
) -> dict[str, Any]:
    """The same for JSON; tokens are estimates."""
    from letta_code.core.tokens import estimated_tokens
    from letta_code.memory.budget import pressure
    from letta_code.memory.overview import overview_of

    slug = project.slug if project is not None else ""
    overview = overview_of(snapshot, slug) if slug else None
    return {
        "total": budget.total,
        "window": window or None,
        "budget": share,
        "files": [
            {
                "path": file.path,
                "tokens": file.tokens,
                "share": round(file.tokens / budget.total, 4) if budget.total else 0,
                "characters": file.characters,
                "limit": file.limit,
            }
            for file in budget.files
        ],
        "project": {
            "slug": slug,
            "files": _files(snapshot, slug),
            "overview_tokens": estimated_tokens(overview.text) if overview is not None else 0,
        }
        if slug
        else None,
        "warnings": list(pressure(budget, window, share)),
    }


def _project_line(snapshot: MemorySnapshot, project: Project | None) -> str:
    from letta_code.core.tokens import estimated_tokens
    from letta_code.memory.overview import overview_of
    from letta_code.memory.scope import project_folder

    if project is None or not project.slug:
        return "none: this folder is nobody's project"
    overview = overview_of(snapshot, project.slug)
    sent = (
        f"overview.md, about {estimated_tokens(overview.text):,} tokens, goes with the first message"
        if overview is not None
        else "no overview.md yet"
    )
    count = _files(snapshot, project.slug)
    return f"{label(project_folder(project.slug))}: {count} file{'' if count == 1 else 's'}; {sent}"


def _files(snapshot: MemorySnapshot, slug: str) -> int:
    from letta_code.memory.scope import project_folder

    entry = snapshot.find(project_folder(slug).rstrip("/"))
    return snapshot.objects.files_below(entry.id) if entry is not None and entry.kind == "folder" else 0
