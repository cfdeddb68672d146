"""`letta memory remote | sync`: one memory on several machines, through any Git host."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from letta_code.cli.memory.common import Agent, AllowSecret, Json, opened, overrides, person
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label, local_time, visible
from letta_code.errors import EXIT_FAILED, LettaError, UsageError

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState
    from letta_code.agent.syncing import BackgroundSync
    from letta_code.memory.git.merge import Conflict, Side
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.git.sync import SyncReport
    from letta_code.memory.sync_record import SyncRecord

app = typer.Typer()
remote = typer.Typer(
    help="The Git repository that memory is synced with.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(remote, name="remote")

_NO_REMOTE = ("memory has no remote", "letta memory remote set URL names one; any bare Git repository serves")
_RUNNING = ("another sync of this memory is running", "wait for its end, and sync again")
_LINES = 40  # of one side of a conflict


Keep: TypeAlias = Literal["ours", "theirs", "both"]


@remote.command("set")
def set_remote(
    ctx: typer.Context,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="A path, file://, ssh://, host:path, https://, git://")
    ],
    agent: Agent = None,
    allow_secret: AllowSecret = False,
) -> None:
    """Sync with this repository from now on. Nothing is sent or fetched yet."""
    from letta_code.memory.git import remote as git_remote
    from letta_code.memory.transport import checked_url, holds_secret, mask

    place: Place = ctx.obj
    overrides(place, allow_secret)
    _persons_own(place, "the remote")
    state, repository = opened(ctx, agent)
    checked = checked_url(url, place.project, allow_secret)
    if holds_secret(checked):
        sys.stderr.write(
            f"warning: the password lies in {label(str(repository.git_dir / 'config'))} in plain text\n"
        )
    git_remote.set_remote(repository, checked)
    place.paths.memory_sync_record(state.key).unlink(missing_ok=True)
    sys.stdout.write(f"{label(mask(checked))}\n")
    sys.stderr.write(f"letta memory sync{_for(agent)}  brings both together\n")


@remote.command()
def show(ctx: typer.Context, agent: Agent = None, json: Json = False) -> None:
    """The remote's address, and how the last sync ended. Asks nobody."""
    from letta_code.memory.git.remote import distance, remote_url
    from letta_code.memory.transport import mask

    place: Place = ctx.obj
    state, repository = opened(ctx, agent)
    url = remote_url(repository)
    record = sync_record(place, state)
    apart = distance(repository)
    if json:
        as_json(
            {
                "url": mask(url) if url is not None else None,
                "unsent": apart[0] if apart is not None else None,
                "last_sync": asdict(record) if record is not None else None,
            }
        )
        return
    if url is None:
        raise UsageError(*_NO_REMOTE)
    sys.stdout.write(f"{label(mask(url))}\n")
    if apart is not None:
        sys.stdout.write(f"{apart[0]} commit{'' if apart[0] == 1 else 's'} not sent yet\n")
    if (line := last_sync(place, state)) is not None:
        sys.stdout.write(f"{line}\n")


@remote.command()
def unset(ctx: typer.Context, agent: Agent = None) -> None:
    """Forget the remote. Memory stays as it is, here and there."""
    from letta_code.memory.git import remote as git_remote

    place: Place = ctx.obj
    _persons_own(place, "the remote")
    state, repository = opened(ctx, agent)
    if git_remote.remote_url(repository) is None:
        raise UsageError(*_NO_REMOTE)
    git_remote.unset_remote(repository)
    place.paths.memory_sync_record(state.key).unlink(missing_ok=True)


@app.command()
def sync(
    ctx: typer.Context,
    keep: Annotated[
        Keep | None,
        typer.Option(
            "--keep",
            help="Where both sides changed the same text: keep this machine's (ours), the remote's (theirs), "
            "or the lines of both.",
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Where the histories cannot be joined: take the remote's. Yours stays under a rescue name.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long it may take in all.")
    ] = 120.0,
    background: Annotated[
        bool, typer.Option("--background", hidden=True, help="Print nothing; leave a note how it ended.")
    ] = False,
    agent: Agent = None,
    json: Json = False,
) -> int:
    """Fetch, merge and push: one memory everywhere. Nothing is ever lost; a conflict changes nothing
    until you say what to keep."""
    from letta_code.storage import locked

    place: Place = ctx.obj
    if adopt:
        _persons_own(place, "--adopt")
    state, repository = opened(ctx, agent)
    if background:
        _in_background(place, state, repository, timeout)
        return 0
    with locked(place.paths.memory_sync_lock(state.key), timeout, *_RUNNING):
        report = _synced(place, state, repository, timeout, keep, adopt)
    if json:
        as_json(asdict(report))
    elif report.outcome == "conflict":
        _show_conflicts(report.conflicts, agent)
    else:
        _show(report)
    return EXIT_FAILED if report.outcome == "conflict" else 0


def sync_record(place: Place, state: AgentState) -> SyncRecord | None:
    """How the last sync of the agent's memory ended; None when there was none."""
    from letta_code.memory.sync_record import read_record

    return read_record(place.paths.memory_sync_record(state.key))


def last_sync(place: Place, state: AgentState) -> str | None:
    """The same in one line."""
    record = sync_record(place, state)
    return None if record is None else f"last sync {local_time(record.when)}: {label(record.message)}"


def background_sync(place: Place, state: AgentState, repository: MemoryRepository) -> BackgroundSync | None:
    """What syncs after turns; None when memory has no remote."""
    from letta_code.agent.syncing import BackgroundSync
    from letta_code.memory.git.remote import remote_url

    if remote_url(repository) is None:
        return None
    # -P: a folder `letta_code` in the project must not be taken for ours.
    words = ("-P", "-m", "letta_code", "memory", "sync", "--background", "--agent", state.id)
    record = place.paths.memory_sync_record(state.key)
    return BackgroundSync((sys.executable, *words), place.environment, record)


def _persons_own(place: Place, what: str) -> None:
    if place.environment.get("LETTA_AGENT_ID"):
        raise UsageError(f"{what} is for a person, not for an agent's shell", "ask the person to do it")


def _for(agent: str | None) -> str:
    return f" --agent {shlex.quote(agent)}" if agent is not None else ""


def _in_background(place: Place, state: AgentState, repository: MemoryRepository, timeout: float) -> None:
    """Sync after the one that runs now, unless another waits for that already: it will see what we see.
    How it ended is in the record; there is nobody to tell now."""
    from letta_code.storage import locked

    paths, key = place.paths, state.key
    try:
        with ExitStack() as held:
            with locked(paths.memory_sync_queue(key), 0, "another sync waits already"):
                held.enter_context(locked(paths.memory_sync_lock(key), timeout, *_RUNNING))
            _synced(place, state, repository, timeout)
    except LettaError:
        return


def _synced(
    place: Place,
    state: AgentState,
    repository: MemoryRepository,
    timeout: float,
    keep: Keep | None = None,
    adopt: bool = False,
) -> SyncReport:
    """Sync, and note how it ended; the caller holds the lock."""
    from letta_code.memory.git import sync as git_sync
    from letta_code.memory.git.remote import remote_url
    from letta_code.memory.sync_record import write_record
    from letta_code.memory.transport import Transport

    file, url = place.paths.memory_sync_record(state.key), remote_url(repository)
    if url is None:
        raise UsageError(*_NO_REMOTE)
    try:
        transport = Transport(repository.git_dir, url, place.environment, timeout)
        report = git_sync.sync(repository, transport, person(place, state), state.id, keep, adopt)
    except LettaError as error:
        write_record(file, "failed", error.message, error.hint)
        raise
    if report.outcome == "conflict":
        paths = ", ".join(conflict.path for conflict in report.conflicts)
        words = f"both sides changed the same text of {paths}"
        write_record(file, "conflict", words, "letta memory sync shows it, and how to settle it")
    else:
        write_record(file, report.outcome, _words(report))
    return report


def _words(report: SyncReport) -> str:
    if report.outcome == "up-to-date":
        return "up to date"
    parts = [
        f"{count} {verb}" for count, verb in ((report.received, "received"), (report.sent, "sent")) if count
    ]
    return ("merged: " if report.merged else "") + (", ".join(parts) or "done")


def _show(report: SyncReport) -> None:
    sys.stdout.write(f"{report.head[:10]}  {_words(report)}\n")
    for path in report.settled:
        sys.stdout.write(f"  settled: {label(path)}\n")
    if report.rescued:
        sys.stderr.write(f"what memory was before is safe as {report.rescued}\n")
    for problem in report.problems:
        sys.stderr.write(f"warning: from the remote: {label(problem)}\n")


def _show_conflicts(conflicts: tuple[Conflict, ...], agent: str | None) -> None:
    write, count = sys.stdout.write, len(conflicts)
    write(
        f"both sides changed the same text of {count} file{'' if count == 1 else 's'}; nothing was changed\n"
    )
    for conflict in conflicts:
        write(f"\n{label(conflict.path)}\n")
        for name, side in (("here", conflict.ours), ("remote", conflict.theirs)):
            _show_side(name, side)
    write("\n")
    for keep, what in (("ours", "this machine's"), ("theirs", "the remote's"), ("both", "the lines of both")):
        write(f"letta memory sync{_for(agent)} --keep {keep:7} {what}\n")


def _show_side(name: str, side: Side | None) -> None:
    if side is None:
        sys.stdout.write(f"  {name:7} has no file of this name\n")
        return
    who = ""
    if side.commit is not None:
        reason = side.commit.reason.splitlines()[0] if side.commit.reason else ""
        when, author = local_time(side.commit.when), side.commit.author_name
        who = f"{side.commit.revision[:10]}  {when}  {label(author)}: {label(reason)}"
    sys.stdout.write(f"  {name:7} {who}\n")
    if side.texts is None:
        sys.stdout.write("      (deleted)\n")
    for number, text in enumerate(side.texts or ()):
        lines = visible(text).split("\n")
        if number:
            sys.stdout.write("      …\n")
        for line in lines[:_LINES]:
            sys.stdout.write(f"      {line}\n")
        if len(lines) > _LINES:
            sys.stdout.write(f"      … {len(lines) - _LINES} more lines\n")
