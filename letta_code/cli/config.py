"""`letta config`: the person's settings file."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from letta_code.cli.place import Place
from letta_code.cli.show import label
from letta_code.errors import UsageError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_SECRETS = ("key", "token", "secret", "password")


@app.callback()
def for_a_person(ctx: typer.Context) -> None:
    """Read and change your settings."""
    place: Place = ctx.obj
    if place.environment.get("LETTA_AGENT_ID"):
        raise UsageError("settings are for a person, not for an agent's shell", "ask the person to do it")


@app.command()
def get(
    ctx: typer.Context,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Such as model or permissions.allow.")
    ] = None,
) -> None:
    """Print one setting, or all of them. Keys of providers are masked."""
    from letta_code.settings.loading import get_value

    place: Place = ctx.obj
    value = get_value(place.paths, key or "")
    if key and value is None:
        raise UsageError(f"{key} is not set", "letta config get shows what is")
    shown = masked({} if value is None else value, (key or "").rsplit(".", 1)[-1])
    words = shown if isinstance(shown, str) else json.dumps(shown, indent=2, ensure_ascii=False)
    sys.stdout.write(words + "\n")


@app.command("set")
def set_setting(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Such as model or providers.openai.base_url.")],
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE", help="Text or JSON; - reads it from standard input; null removes it."
        ),
    ],
) -> None:
    """Change one setting."""
    from letta_code.settings.loading import set_value

    place: Place = ctx.obj
    text = sys.stdin.read().strip() if value == "-" else value
    set_value(place.paths, key, _parsed(text))
    sys.stderr.write(
        f"{label(key)} is {'removed' if text == 'null' else 'set'} in {place.paths.settings()}\n"
    )


@app.command()
def path(ctx: typer.Context) -> None:
    """Print where the settings file is (it may not exist yet)."""
    place: Place = ctx.obj
    sys.stdout.write(f"{place.paths.settings()}\n")


def masked(value: Any, name: str = "") -> Any:
    """`value` with everything under a secret's name replaced by its last characters."""
    if isinstance(value, dict):
        return {key: masked(item, f"{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, name) for item in value]
    if isinstance(value, str) and any(word in name.lower() for word in _SECRETS):
        return f"…{value[-4:]}" if len(value) > 12 else "…"
    return value


def _parsed(text: str) -> Any:
    """JSON when it is an object, a list, a boolean, a number or null; else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
