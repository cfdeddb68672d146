"""`letta models`: what can be reached, and from where the key comes. Never the key."""

from __future__ import annotations

import asyncio
import sys

import typer

from letta_code.cli.place import Place
from letta_code.cli.show import label


def models_command(ctx: typer.Context) -> None:
    """What models can be reached, and from where each key comes."""
    from letta_code.models.providers import discover

    place: Place = ctx.obj
    settings = place.settings()
    for provider in asyncio.run(discover(settings, place.environment)):
        source = provider.key_source or "no key needed"
        sys.stdout.write(f"{provider.name}  {label(provider.address)}  ({source})\n")
        if provider.problem:
            sys.stdout.write(f"    {label(provider.problem)}\n")
        for name in provider.models:
            sys.stdout.write(f"    {provider.name}/{label(name)}\n")
    if settings.model:
        sys.stdout.write(f"default: {label(settings.model)} (settings)\n")
