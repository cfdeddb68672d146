"""`letta memory view`: the memory as one page for a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.memory.common import Agent, opened
from letta_code.cli.place import Place
from letta_code.errors import UsageError

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState
    from letta_code.memory.git.repository import MemoryRepository

app = typer.Typer()


@app.command()
def view(
    ctx: typer.Context,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write it there and open nothing; `-`: to standard output."
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only write it and print where.")] = False,
    agent: Agent = None,
) -> None:
    """Show memory as a page in your browser. Files, problems, history with diffs; it loads nothing."""
    from letta_code.storage import write_atomically

    place: Place = ctx.obj
    state, repository = opened(ctx, agent)
    file = _target(out) if out not in (None, "-") else place.paths.memory_page(state.key)
    html = _html(place, state, repository)
    if out == "-":
        sys.stdout.buffer.write(html)
        sys.stdout.buffer.flush()
        return
    write_atomically(file, html)
    sys.stdout.write(f"{file}\n")
    sys.stdout.flush()
    if out is None and not no_open and not _open(place, file):
        sys.stderr.write("no browser was found: open the file above in one\n")


def _target(out: str) -> Path:
    """The file that `--out` names, links followed.

    Raises:
        UsageError: it is something other than a file.
    """
    file = Path(out).expanduser().resolve()
    if file.exists() and not file.is_file():
        raise UsageError(f"--out: {out} is not a file", "`--out -` writes to standard output")
    if not file.parent.is_dir():
        raise UsageError(f"--out: there is no folder {file.parent}", "make it first")
    return file


def _html(place: Place, state: AgentState, repository: MemoryRepository) -> bytes:
    from letta_code.memory.git.review import pending
    from letta_code.memory.page.content import COMMITS, About, collect
    from letta_code.memory.page.html import page_html

    waiting = pending(repository, COMMITS)
    held, drafts = sum(item.held for item in waiting), len(repository.status())
    notes = []
    if drafts:
        notes.append(f"Not shown: {drafts:,} uncommitted. `letta memory status` lists them.")
    if held:
        notes.append(f"Not in memory until you confirm: {held:,}. `letta memory review` shows them.")
    about = About(
        agent=state.name,
        window=_window(place, state),
        budget=place.settings().memory.budget,
        waiting=frozenset(item.commit.revision for item in waiting if not item.held),
        notes=tuple(notes),
    )
    return page_html(collect(repository, about)).encode("utf-8")


def _window(place: Place, state: AgentState) -> int:
    """The window (tokens) of the agent's model; 0 when it has none that we know."""
    from letta_code.models.catalog import model_info

    provider, _, name = (state.model or place.settings().model or "").partition("/")
    info = model_info(provider, name) if name else None
    return info.window if info is not None and info.known else 0


def _open(place: Place, file: Path) -> bool:
    """Open `file` in a browser of the desktop, when there is one. A browser in the terminal is none."""
    import webbrowser

    environment = place.environment
    if sys.platform == "linux" and not any(
        environment.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    ):
        return False
    return webbrowser.open(file.as_uri())
