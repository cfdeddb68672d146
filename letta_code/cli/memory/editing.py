"""`letta memory edit PATH`: change a memory file in the person's own editor, by the rules of memory.

The editor gets a private copy, not the file of the memory folder: others may write meanwhile, and what is
refused stays where the person can go on with it.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from letta_code.cli.hook import refuse_held
from letta_code.cli.memory.common import (
    Agent,
    AllowSecret,
    OverLimit,
    opened,
    overrides,
    person,
    provenance,
    tell,
)
from letta_code.cli.memory.naming import complete_paths, file_named
from letta_code.cli.place import Place
from letta_code.cli.show import label
from letta_code.errors import LettaError, MemoryEditError, MemoryStoreError, UsageError

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.history import MemoryCommit
    from letta_code.memory.snapshot import MemorySnapshot

app = typer.Typer()

_NEW = b"---\ndescription: \n---\n"


class EditorError(LettaError):
    """The editor could not be started, or said that it failed."""


@app.command()
def edit(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", autocompletion=complete_paths, help="A memory file; it may be new."),
    ],
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="WHY", help="Why. Without it you are asked, afterwards."),
    ] = None,
    agent: Agent = None,
    allow_secret: AllowSecret = False,
    over_limit: OverLimit = False,
) -> None:
    """Edit a file in $VISUAL or $EDITOR, and commit it. A text that is refused is kept, and can be mended."""
    from letta_code.memory.edits import Put
    from letta_code.memory.git.undo import has_draft

    place: Place = ctx.obj
    state, repository = opened(ctx, agent)
    refuse_held(place.environment, place.paths)
    waived = overrides(place, allow_secret, over_limit)
    if message is None and not sys.stdin.isatty():
        raise UsageError("why? nobody can be asked here", "say it: letta memory edit PATH -m WHY")
    editor = _editor(place.environment)
    snapshot = repository.snapshot()
    name = _editable(repository, snapshot, path)
    if has_draft(repository, name):
        raise MemoryEditError(
            f"{label(name)}: has an uncommitted draft in the memory folder",
            "commit or undo it first (letta memory status, letta memory diff)",
        )
    before = snapshot.read(name) if snapshot.find(name) is not None else None
    file = Path(tempfile.mkdtemp(prefix="letta-edit-")) / name.rsplit("/", 1)[-1]
    file.write_bytes(_NEW if before is None else before)

    def commit(text: bytes) -> MemoryCommit:
        nonlocal message
        while not message:
            message = _ask("why › ")
        who, origin = person(place, state), provenance(place, state)
        change = Put({name: text})
        return repository.commit(change, message, who, origin, expected=snapshot.revision, overrides=waived)

    made = None
    while made is None:
        text = _edited(editor, file, _NEW if before is None else before, place.environment)
        if text is None:
            break
        try:
            made = commit(text)
        except MemoryEditError as error:
            if not _again(error):
                raise _kept(error, file) from error
        except (LettaError, typer.Abort, KeyboardInterrupt) as error:
            raise _kept(error, file) from error
    shutil.rmtree(file.parent, ignore_errors=True)
    if made is None:
        sys.stderr.write("nothing was changed\n")
    else:
        tell(made)


def _editor(environment: Mapping[str, str]) -> list[str]:
    """The words that start the person's editor."""
    for variable in ("VISUAL", "EDITOR"):
        if not environment.get(variable, "").strip():
            continue
        try:
            words = shlex.split(environment[variable])
        except ValueError as error:
            raise UsageError(f"{variable} cannot be read: {error}") from error
        if shutil.which(words[0], path=environment.get("PATH")) is None:
            raise UsageError(f"{variable} names {label(words[0])}, which is not installed")
        return words
    for usual in ("nano", "vi"):
        if shutil.which(usual, path=environment.get("PATH")) is not None:
            return [usual]
    raise UsageError("no editor is known", "set EDITOR, such as: export EDITOR='code --wait'")


def _editable(repository: MemoryRepository, snapshot: MemorySnapshot, given: str) -> str:
    """The file that `given` means, or the name of a new one."""
    from letta_code.memory.edits import memory_path

    try:
        return file_named(repository, snapshot, given)
    except MemoryStoreError:
        return memory_path(snapshot.entries, given)


def _edited(editor: list[str], file: Path, before: bytes, environment: Mapping[str, str]) -> bytes | None:
    """What the person made of the text; None when nothing."""
    # Ctrl-C is the editor's while it runs (a handler, since what is ignored stays ignored in a child).
    interrupt = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        code = subprocess.run([*editor, str(file)], env=dict(environment), check=False).returncode
        after = file.read_bytes()
    except OSError as error:
        raise EditorError(f"{label(shlex.join(editor))}: {error.strerror or error}") from error
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if code != 0:
        where = f"your text is kept in {label(str(file))}" if after != before else ""
        if not where:
            shutil.rmtree(file.parent, ignore_errors=True)
        how = f"ended with exit code {code}" if code > 0 else f"was ended ({signal.Signals(-code).name})"
        raise EditorError(f"{label(shlex.join(editor))} {how}; nothing was committed", where)
    return after if after != before else None


def _ask(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError as error:
        raise typer.Abort from error


def _again(error: LettaError) -> bool:
    """Whether the person wants to mend a text that was refused."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"letta: {error.message}\n")
    return _ask("edit again? [Y/n] ").lower() in ("", "y", "yes")


def _kept(error: BaseException, file: Path) -> LettaError:
    """The error, saying where the text lies."""
    where = f"your text is kept in {label(str(file))}"
    if isinstance(error, LettaError):
        return type(error)(error.message, f"{error.hint}\n{where}".strip())
    return EditorError("nothing was committed", where)
