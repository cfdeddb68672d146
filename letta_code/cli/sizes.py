"""What is said of memory's size, in lines and as numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from letta_code.cli.show import label

if TYPE_CHECKING:
    from letta_code.agent.projects import Project
    from letta_code.agent.state import AgentState
    from letta_code.cli.place import Place
    from letta_code.conversations.history import History
    from letta_code.memory.budget import Budget
    from letta_code.memory.snapshot import MemorySnapshot
    from letta_code.models.base import ModelInfo


def model_of(place: Place, state: AgentState, history: History | None = None) -> ModelInfo:
    """What is known of the model that the conversation chose last, else of the one that is set for the agent
    or in general. Its handle is "" and its window 0 when there is none."""
    from letta_code.models.catalog import model_info

    last = history.steps[-1].sent.chosen if history is not None and history.steps else ""
    handle = last or state.model or place.settings().model or ""
    provider, _, name = handle.partition("/")
    info = model_info(provider, name)
    return info if name else replace(info, handle="", window=0)


def budget_window(info: ModelInfo) -> int:
    """The window that memory's budget is a part of; 0 when it is not known."""
    return info.window if info.known else 0


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


def project_line(snapshot: MemorySnapshot, project: Project | None) -> str:
    """The project's part of memory, in one line."""
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
