"""`letta memory`: an agent's memory, for people and scripts. Each module brings some of its commands."""

from __future__ import annotations

import typer

from letta_code.cli.memory import asking, changes, check, editing, history, review, sharing, transfer, view

app = typer.Typer(
    help="Look at an agent's memory, and change it.", no_args_is_help=True, rich_markup_mode=None
)
for part in (history, asking, view, changes, editing, check, review, sharing, transfer):
    app.add_typer(part.app)
