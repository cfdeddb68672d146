"""What the hooks of a memory's repository run: the check of a commit that plain Git is about to make.

A program of its own beside `letta`, since a person waits for it at every commit: it imports no command tree.
`letta memory check --staged` is the same check.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from letta_code.cli.show import label
from letta_code.errors import EXIT_FAILED, LettaError, UsageError

if TYPE_CHECKING:
    from letta_code.memory.git.repository import MemoryRepository
    from letta_code.memory.snapshot import Problem
    from letta_code.paths import Paths

_SCISSORS = "# ------------------------ >8 ------------------------"


def main(words: Sequence[str]) -> int:
    """`staged REPOSITORY` or `message REPOSITORY FILE`: 0 when the commit may be made, else 1 and what is
    wrong on stderr."""
    sys.excepthook = _bug
    try:
        if words[0] == "message":
            return refuse(problems_of_message(Path(words[2])))
        from letta_code.memory.git.check import opened_inside_git
        from letta_code.paths import Paths

        refuse_held(os.environ, Paths.from_environment())
        memory = opened_inside_git(Path(words[1]))
        return refuse([line(problem) for problem in problems_of_staged(memory, os.environ)])
    except LettaError as error:
        sys.stderr.write(f"letta: {error.message}\n       {error.hint}\n")
        return EXIT_FAILED


def _bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    from letta_code.cli.bugs import report_bug

    report_bug(kind, error, trace)


def refuse_held(environment: Mapping[str, str], paths: Paths) -> None:
    """Refuse to commit for an agent (its shell names it) whose writes are held back.

    Raises:
        UsageError: they are.
    """
    if not environment.get("LETTA_AGENT_ID"):
        return
    from letta_code.settings.loading import load_settings

    if load_settings(paths).memory.review == "hold":
        raise UsageError(
            "what an agent writes is held for the person's review, so its shell cannot commit",
            "use the memory tool; or leave the drafts for the person (letta memory status, commit)",
        )


def problems_of_staged(memory: MemoryRepository, environment: Mapping[str, str]) -> tuple[Problem, ...]:
    """What is wrong with the commit that Git is about to make in `memory`."""
    from letta_code.memory.git.check import problems_of_index
    from letta_code.memory.rules import overrides_in

    return problems_of_index(memory, _index(memory, environment), overrides_in(environment))


def problems_of_message(file: Path) -> list[str]:
    """What is wrong with the message of a commit, as Git keeps it in a file."""
    from letta_code.memory.secrets import found, refusal

    text = file.read_text("utf-8", "replace").split(_SCISSORS, 1)[0]
    secrets = found("\n".join("" if part.startswith("#") else part for part in text.split("\n")))
    return [f"the message: {refusal(secrets)}"] if secrets else []


def refuse(lines: Sequence[str]) -> int:
    """Say what is wrong on stderr, when something is; the exit code."""
    if not lines:
        return 0
    sys.stderr.write("letta: this commit was not made, it breaks rules of memory:\n")
    for text in lines:
        sys.stderr.write(f"  {text}\n")
    skips = " (git commit --no-verify skips the check, not the rules)"
    own = "" if os.environ.get("LETTA_AGENT_ID") else skips
    sys.stderr.write(f"Correct it and commit again{own}.\n")
    return EXIT_FAILED


def line(problem: Problem) -> str:
    """A file and what is wrong with it, on one line."""
    from letta_code.memory.secrets import masked

    return f"{label(masked(problem.path))}: {label(problem.message)}"


def _index(memory: MemoryRepository, environment: Mapping[str, str]) -> Path:
    """The index that Git commits from: its own of the moment for `git commit -a`, `-p` or with paths. One
    that lies in another repository is not meant for us."""
    named = environment.get("GIT_INDEX_FILE")
    own = memory.git_dir.resolve()
    file = Path(named).absolute() if named else None
    return file if file is not None and file.resolve().parent == own else own / "index"
