"""`letta models`: what can be reached, and from where the key comes. Never the key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from letta_code.cli.place import Place
from letta_code.cli.show import label

if TYPE_CHECKING:
    from letta_code.models.providers import ProviderStatus


def models_command(ctx: typer.Context) -> None:
    """What models can be reached, and from where each key comes."""
    from letta_code.models.providers import discover

    place: Place = ctx.obj
    settings = place.settings()
    for status in discover(settings, place.environment):
        key = f"key from {status.key_source}" if status.key_source else "no key"
        state = {True: "running", False: "not running", None: "not tried"}[status.reachable]
        if status.reachable is None and not status.configured:
            state = "not set up"
        sys.stdout.write(f"{status.provider:11} {label(status.address)}  {key}, {state}\n")
        for handle in status.models or _known(status):
            sys.stdout.write(f"    {label(handle)}\n")
    if settings.model:
        sys.stdout.write(f"default: {label(settings.model)} (settings)\n")


def _known(status: ProviderStatus) -> list[str]:
    """The models of the catalog that a provider with a key offers."""
    from letta_code.models.catalog import known_models

    if not status.configured:
        return []
    return [handle for handle in known_models() if handle.startswith(f"{status.provider}/")]
