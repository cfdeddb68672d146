"""`letta trust`: which folders' settings may loosen what the person set; the question at a chat's start."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.place import Place
from letta_code.cli.show import label, local_time
from letta_code.errors import LettaError, UsageError

if TYPE_CHECKING:
    from letta_code.settings.project import ProjectSettings
    from letta_code.settings.trust import TrustStore


def trust_command(
    ctx: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="The project's folder; this one without it.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the folders that are trusted.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Trust the folder no longer.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let a project's .letta/settings.json and settings.local.json loosen permissions.

    Without it they can only tighten. A change of the files asks again.
    """
    from letta_code.settings.project import read_project
    from letta_code.settings.trust import TrustStore

    place: Place = ctx.obj
    store = TrustStore(place.paths)
    if listed:
        _list(store)
        return
    if place.environment.get("LETTA_AGENT_ID"):
        raise UsageError(
            "trusting a folder is for a person, not for an agent's shell", "ask the person to do it"
        )
    where = Path(os.path.realpath(place.project / folder.expanduser() if folder else place.project))
    if remove:
        known = store.remove(where)
        _say(f"{label(str(where))} is trusted no longer" if known else f"{label(str(where))} was not trusted")
        return
    if not where.is_dir():
        raise UsageError(f"no such folder: {label(str(folder))}")
    found = read_project(where)
    if not found.loosens:
        _say(f"the settings of {label(str(where))} loosen nothing: there is nothing to trust")
        return
    sys.stdout.write("\n".join(shown(found)) + "\n")
    if store.trusts(where, found.digest):
        _say("it is trusted already")
        return
    if not yes:
        if not os.isatty(0):
            raise UsageError("there is nobody to ask", "--yes trusts what is shown")
        sys.stderr.write("Trust it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            _say("not trusted")
            return
    store.record(where, found.digest)
    _say(f"{label(str(where))} is trusted until its settings change")


def offer_trust(place: Place) -> None:
    """At the start of a chat: show what an untrusted project's settings would loosen, and ask once.

    Raises:
        LettaError: the settings cannot be read.
    """
    from letta_code.settings.trust import TrustStore

    found = place.settings().untrusted
    if found is None:
        return
    _say("The settings that came with this folder would loosen permissions:")
    _say("\n".join(shown(found)))
    while True:
        sys.stderr.write("1 trust · 2 not now › ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if answer.strip() == "1":
            try:
                TrustStore(place.paths).record(found.folder, found.digest)
            except LettaError as error:
                _say(f"warning: {error.message}; it is not trusted")
            return
        if answer.strip() == "2" or not answer:
            _say("They only tighten for now. letta trust shows and trusts them.")
            return


def untrusted_warning(found: ProjectSettings) -> str:
    """One line for a run that asks nobody."""
    loosens = found.loosens
    parts = [
        f"{len(loosens.allow)} allow rule{'s' * (len(loosens.allow) != 1)}" if loosens.allow else "",
        "defaultMode" if loosens.mode else "",
        "additionalDirectories" if loosens.directories else "",
        "env" if loosens.environment else "",
    ]
    named = ", ".join(part for part in parts if part)
    return f"this folder's settings are not trusted, so they do not loosen anything ({named}): letta trust"


def shown(found: ProjectSettings) -> list[str]:
    """What trusting these settings would allow, line by line."""
    loosens = found.loosens
    lines = [label(str(found.folder))]
    lines += [f"  allow   {label(rule)}  ({file})" for rule, file in loosens.allow]
    lines += [f"  mode    {loosens.mode}"] if loosens.mode else []
    lines += [f"  folder  {label(name)}" for name in loosens.directories]
    lines += [f"  env     {label(name)}={label(value)}" for name, value in loosens.environment.items()]
    if found.never:
        lines.append(f"  Never taken from a project: {label(', '.join(found.never))}")
    return lines


def _list(store: TrustStore) -> None:
    from letta_code.settings.project import read_project

    for item in store.list():
        try:
            digest = read_project(item.folder).digest if item.folder.is_dir() else ""
            state = (
                "trusted" if digest == item.digest else "changed since, so not trusted" if digest else "gone"
            )
        except LettaError:
            state = "unreadable, so not trusted"
        sys.stdout.write(f"{label(str(item.folder))}  {local_time(item.when)}  {state}\n")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
