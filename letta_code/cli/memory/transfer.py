"""`letta memory export | import`: memory as files, and files as memory."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from letta_code.cli.memory.common import (
    Agent,
    AllowSecret,
    Json,
    in_agents_shell,
    opened,
    overrides,
    person,
)
from letta_code.cli.place import Place
from letta_code.cli.show import as_json, label
from letta_code.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from letta_code.agent.state import AgentState
    from letta_code.memory.git.bundle import History
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.importing.kinds import Source
    from letta_code.memory.importing.plan import Plan

app = typer.Typer()

KindName = Literal["export", "letta", "claude-memory", "rules", "markdown"]

_SHOWN = 40  # files in a summary


@app.command("export")
def export_command(
    ctx: typer.Context,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET", help="A folder, or a file: .tar.gz, .zip, or .bundle with all history."
        ),
    ],
    agent: Agent = None,
    json: Json = False,
) -> None:
    """Write memory to a folder, an archive or a Git bundle. What is committed; a bundle has all history."""
    from letta_code.memory import exporting
    from letta_code.memory.git.log import log

    place: Place = ctx.obj
    _, repository = opened(ctx, agent)
    path = _absolute(place, target)
    form = exporting.form_of(path)
    snapshot = repository.snapshot()
    left: list[str] = []
    if form == "bundle":
        from letta_code.memory.git.bundle import write_bundle

        write_bundle(repository, path)
    else:
        entries = snapshot.walk(snapshot.root)
        listed = [(name, entry) for name, entry in entries]
        left = [name for name, entry in listed if entry.kind != "file"]
        files = {name: snapshot.objects.blob(entry.id) for name, entry in listed if entry.kind == "file"}
        if form == "folder":
            exporting.write_folder(path, files, snapshot.revision)
        else:
            if path.exists() and not _is_export(path, Path.home()):
                raise UsageError(f"{path} exists and is no export", "name a new file")
            [commit] = log(repository, 1)
            exporting.write_archive(
                path, files, snapshot.revision, int(datetime.fromisoformat(commit.when).timestamp())
            )
    count = len(snapshot.entries)
    if json:
        as_json(
            {
                "target": str(path),
                "form": form,
                "revision": snapshot.revision,
                "files": count,
                "left_out": left,
            }
        )
        return
    sys.stdout.write(f"{label(str(path))}\n")
    what = "all history and " if form == "bundle" else ""
    sys.stderr.write(f"{what}{_files(count)} of {snapshot.revision[:10]}\n")
    for name in left:
        sys.stderr.write(f"left out: {label(name)} is a symbolic link or a submodule\n")
    if drafts := repository.status():
        sys.stderr.write(f"{len(drafts)} uncommitted, so not in it: letta memory status\n")


@app.command("import")
def import_command(
    ctx: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="An export; Letta Code's memory folder; a project or file with rules (CLAUDE.md, AGENTS.md, "
            ".cursorrules, GEMINI.md, …); Claude Code's memory folder; Markdown.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what would happen; change nothing.")
    ] = False,
    kind: Annotated[
        KindName | None,
        typer.Option("--as", metavar="KIND", help="What it is: " + ", ".join(KindName.__args__)),
    ] = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="FOLDER", help="Put the files into this folder of memory.")
    ] = None,
    take: Annotated[
        bool,
        typer.Option("--replace", help="Where memory has another text under the name: take the source's."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow_secret: AllowSecret = False,
    agent: Agent = None,
    json: Json = False,
) -> int:
    """Take files into memory, in one commit. Done again, it adds nothing; what was changed in memory
    is kept."""
    from letta_code.memory.importing.kinds import recognise

    place: Place = ctx.obj
    if in_agents_shell(place):
        raise UsageError("import is for a person, not for an agent's shell", "ask the person to do it")
    state, repository = opened(ctx, agent)
    found = recognise(_absolute(place, source), _home(place), kind)
    with ExitStack() as stack:
        history = None
        if found.kind == "history":
            from letta_code.memory.git.bundle import opened_history

            history = stack.enter_context(opened_history(found.path, place.environment))
            found = replace(found, kind=kind or "history", files=history.files)
        task = _Import(place, state, repository, found, history, into, take, allow_secret, dry_run)
        commit = ""
        if not dry_run and task.changes and _agreed(task, yes or json):
            commit = task.run()
    if json:
        as_json(task.as_dict(commit, dry_run))
    else:
        _tell(task, commit, dry_run, agent)
    failed = not task.plan.files and bool(task.plan.skipped)
    return EXIT_FAILED if failed else 0


class _Import:
    """One import: its plan, and how it is carried out."""

    def __init__(
        self,
        place: Place,
        state: AgentState,
        repository: MemoryRepository,
        source: Source,
        history: History | None,
        into: str | None,
        take: bool,
        allow_secret: bool,
        dry_run: bool,
    ) -> None:
        from letta_code.memory.git.beginning import is_fresh
        from letta_code.memory.git.bundle import past_secrets
        from letta_code.memory.importing.kinds import items_of
        from letta_code.memory.importing.plan import Memory, make_plan
        from letta_code.memory.rules import checked_path
        from letta_code.memory.seed import default_files
        from letta_code.memory.snapshot import SnapshotFiles

        self.source = source
        self._place, self._state, self._repository, self._history = place, state, repository, history
        self._snapshot = repository.snapshot()
        folder = checked_path(into.rstrip("/")) + "/" if into and into.strip("/") else ""
        whole = source.kind in ("export", "history") and not folder
        fresh = is_fresh(repository)
        self.as_history = source.kind == "history" and fresh and whole
        self.origin = _with_tilde(source.root if source.path.is_dir() else source.path, _home(place))
        self._root = self.origin if source.only == "" else _with_tilde(source.root, _home(place))
        self._overrides = overrides(place, allow_secret, over_limit=True)
        items, skipped = items_of(source, _project_folder(place, source, not dry_run), folder, _name(source))
        if self.as_history and history is not None and "secret" not in self._overrides:
            skipped += past_secrets(history)
        seed = {path: text.encode("utf-8") for path, text in default_files().items()}
        self.plan: Plan = make_plan(
            Memory(SnapshotFiles(self._snapshot), seed, fresh),
            items,
            skipped,
            self._root,
            self._overrides,
            take,
            whole,
        )

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.plan.changes) or self._another_history

    @property
    def _another_history(self) -> bool:
        history = self._history
        return self.as_history and history is not None and history.revision != self._snapshot.revision

    def run(self) -> str:
        """Do it; the commit that memory is at then."""
        from letta_code.memory.edits import Put
        from letta_code.memory.git.bundle import take_history
        from letta_code.memory.history import Provenance
        from letta_code.memory.importing.plan import message_of

        if self.as_history and self._history is not None:
            refused = [one for one in self.plan.skipped if "--allow-secret" in one.why]
            if refused:
                raise UsageError(
                    f"{label(refused[0].path)} of the history {label(refused[0].why)}",
                    "--as export imports the last files alone, without the history",
                )
            take_history(self._repository, self._history, self._place.environment)
            return self._history.revision
        commit = self._repository.commit(
            Put(self.plan.changes),
            message_of(self.plan, self.origin, self.source.kind),
            person(self._place, self._state),
            Provenance(agent=self._state.id, source="import"),
            self._snapshot.revision,
            self._overrides,
        )
        return commit.revision

    def as_dict(self, commit: str, dry_run: bool) -> dict[str, object]:
        """For `--json`."""
        return {
            "source": str(self.source.path),
            "kind": self.source.kind,
            "history": self.as_history,
            "dry_run": dry_run,
            "commit": commit or None,
            "files": [asdict(one) for one in self.plan.files],
            "removed": sorted(path for path, data in self.plan.changes.items() if data is None),
            "skipped": [asdict(one) for one in self.plan.skipped],
        }


def _agreed(task: _Import, yes: bool) -> bool:
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    _show_plan(task, sys.stderr.write, _SHOWN)
    count = sum(1 for data in task.plan.changes.values() if data is not None)
    typer.confirm(f"Import {_files(count)} ({task.source.kind})?", default=True, abort=True, err=True)
    return True


def _tell(task: _Import, commit: str, dry_run: bool, agent: str | None) -> None:
    plan, write = task.plan, sys.stderr.write
    if dry_run:
        _show_plan(task, sys.stdout.write, None)
    elif commit:
        sys.stdout.write(f"{commit[:10]}  {_files(plan.count('new') + plan.count('replaced'))} imported\n")
    for left in () if dry_run else plan.skipped:
        write(f"skipped: {label(left.path)}: {label(left.why)}\n")
    if kept := [one for one in plan.files if one.state == "differs"]:
        if not dry_run:
            for one in kept[:_SHOWN]:
                write(f"kept yours: {label(one.target)}\n")
        write(f"{_files(len(kept))} of memory kept where it has another text; --replace takes the source's\n")
    if dry_run:
        write("nothing was changed\n")
    elif not commit:
        write(f"nothing to import: {_files(plan.count('same'))} here already\n")
    else:
        option = f" --agent {shlex.quote(agent)}" if agent is not None else ""
        write(f"letta memory revert {commit[:10]}{option}  undoes it\n" if not task.as_history else "")


def _show_plan(task: _Import, write: Callable[[str], object], limit: int | None) -> None:
    words = {"new": "new", "same": "same", "differs": "kept", "replaced": "replace"}
    if task.as_history:
        write("the whole history, as it is\n")
    files = task.plan.files
    for one in files[:limit]:
        note = f"  ({one.note})" if one.note else ""
        write(f"{words[one.state]:8} {label(one.target)}  from {label(one.source)}{label(note)}\n")
    if limit is not None and len(files) > limit:
        write(f"… {len(files) - limit:,} more; --dry-run shows all\n")
    for path, data in task.plan.changes.items():
        if data is None:
            write(f"remove   {label(path)}  (what a new agent begins with)\n")
    for skipped in task.plan.skipped[:limit]:
        write(f"skip     {label(skipped.path)}: {label(skipped.why)}\n")


def _absolute(place: Place, path: Path) -> Path:
    return Path(os.path.abspath(place.project / path.expanduser()))


def _home(place: Place) -> Path:
    return Path(place.environment.get("HOME") or Path.home())


def _with_tilde(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)


def _is_export(path: Path, home: Path) -> bool:
    from letta_code.memory.importing.kinds import recognise

    return recognise(path, home).kind == "export"


def _name(source: Source) -> str:
    """What a source is called in memory. Claude Code names a memory's folder after its project's path."""
    path = (
        source.root.parent if source.kind == "claude-memory" and source.root.name == "memory" else source.root
    )
    name = path.name
    for suffix in (".tar.gz", ".tgz", ".tar", ".zip"):
        name = name.removesuffix(suffix)
    return name.strip("-. ") or "imported"


def _project_folder(place: Place, source: Source, remember: bool) -> str:
    """The memory folder of the project whose rules these are; "" where they hold everywhere."""
    from letta_code.agent.projects import ProjectRegister, project_of
    from letta_code.memory.scope import project_folder

    folder = source.root
    if source.kind == "claude-memory":
        if _claude_name(place.project) != source.root.parent.name:
            return ""
        folder = place.project
    elif source.kind != "rules" or not folder.is_dir():
        return ""
    project = project_of(folder, ProjectRegister(place.paths), remember)
    if not project.slug:
        return ""
    real = Path(os.path.realpath(folder))
    inner = (
        real.relative_to(project.root)
        if source.kind == "rules" and real.is_relative_to(project.root)
        else Path()
    )
    return project_folder(project.slug) + (f"{inner.as_posix()}/" if inner.parts else "")


def _claude_name(project: Path) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in str(project))


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"
