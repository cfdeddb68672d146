#!/usr/bin/env python3
"""Many writers at once, and processes that die: what DESIGN promises of memory, at full size.

    stress_memory.py race  --writers 8 --writes 100
    stress_memory.py kill  --kills 200

`race`: processes edit overlapping files while a person commits with plain git in the work tree; then every
accepted write must be in the history and in HEAD, and Git content. `kill`: a process that writes is ended by
SIGKILL at a random moment, again and again; after each the repository must open, HEAD be a whole commit and
every draft as it was. Prints figures; the exit status is 1 when something was lost.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from letta_code.errors import MemoryConflict, MemoryEditError  # noqa: E402
from letta_code.memory.edits import Edit, Insert, Put, Replace  # noqa: E402
from letta_code.memory.git.repository import Author, MemoryRepository  # noqa: E402

_FILES = ("shared.md", "notes/a.md", "notes/b.md")
_LINES = 40
_TEXT = "---\ndescription: Shared.\n---\n" + "".join(f"slot {number}: free\n" for number in range(_LINES))


class Lost(Exception):
    """A promise was broken."""


def made(folder: Path) -> MemoryRepository:
    """A repository whose files all writers edit."""
    files = dict.fromkeys(_FILES, _TEXT) | {"person.md": "---\ndescription: The person's.\n---\n"}
    return MemoryRepository.create(
        folder / "repo.git", folder / "memory", files, Author("Start", "s@example.org"), "Begin"
    )


def write(git_dir: Path, name: str, writes: int) -> None:
    """One writer: unique lines, put at chosen places by what it last saw; a refused one is made again.
    Prints `accepted COMMIT LINE` and `refused REASON`."""
    chosen = random.Random(name)
    repository = MemoryRepository.open(git_dir)
    author = Author(name, f"{name}@example.org")
    for number in range(writes):
        line = f"{name} wrote {number}"
        while True:
            seen = repository.snapshot()
            try:
                edit = _edit(chosen, seen.read(path := chosen.choice(_FILES)).decode(), path, line)
                done = repository.commit(edit, line, author, expected=seen.revision)
            except (MemoryConflict, MemoryEditError) as error:
                print("refused", error.message, flush=True)
            else:
                print("accepted", done.revision, line, flush=True)
                break


def _edit(chosen: random.Random, text: str, path: str, line: str) -> Edit:
    slot = f"slot {chosen.randrange(_LINES)}:"
    old = next(found for found in text.splitlines() if found.startswith(slot))
    if chosen.random() < 0.5:
        return Replace(path, old + "\n", f"{old}\n{line}\n")
    return Insert(path, text.split("---\n", 2)[2].splitlines().index(old) + 1, line)


def race(folder: Path, writers: int, writes: int) -> str:
    """Writers and a person at once; what came of it.

    Raises:
        Lost: a write is missing, or Git is not content.
    """
    repository = made(folder)
    command = [sys.executable, str(Path(__file__).resolve()), "write", str(repository.git_dir)]
    started = time.monotonic()
    running = [
        subprocess.Popen(
            [*command, f"w{number}", str(writes)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for number in range(writers)
    ]
    person = _person_meanwhile(repository, running)
    ends = [process.communicate() for process in running]
    seconds = time.monotonic() - started
    if errors := [err for _, err in ends if err]:
        raise Lost(f"a writer failed: {errors[0]}")
    said = [line for out, _ in ends for line in out.splitlines()]
    accepted = [line.split(" ", 2)[1:] for line in said if line.startswith("accepted ")]
    if len(accepted) != writers * writes:
        raise Lost(f"{len(accepted)} of {writers * writes} writes were accepted")
    history = set(_git(repository, "rev-list", "HEAD").split())
    texts = "".join(_git(repository, "show", f"HEAD:{path}") for path in _FILES).splitlines()
    for revision, line in [*accepted, *person]:
        if revision not in history:
            raise Lost(f"{revision} ({line}) is not in the history")
        if f"+{line}" not in _git(repository, "show", "--format=", revision).splitlines():
            raise Lost(f"{revision} does not add {line!r}")
    for _, line in accepted:
        if texts.count(line) != 1:
            raise Lost(f"HEAD has {line!r} {texts.count(line)} times")
    mine = _git(repository, "show", "HEAD:person.md").splitlines()
    if absent := [line for _, line in person if line not in mine]:
        raise Lost(f"the person's lines are gone: {absent}")
    _content(repository)
    return (
        f"{writers} processes x {writes} writes: {len(accepted)} accepted, "
        f"{len(said) - len(accepted)} refused and made again, {len(person)} commits by plain git meanwhile, "
        f"{seconds:.1f} s; history whole"
    )


def _person_meanwhile(
    repository: MemoryRepository, running: Sequence[subprocess.Popen[str]]
) -> list[list[str]]:
    """Commits of a person until the writers end; commit and line of each that Git accepted."""
    done: list[list[str]] = []
    number = 0
    # Output of writers is read at the end; a pipe holds 64 kB, so they are short of words.
    while any(process.poll() is None for process in running):
        number += 1
        line = f"person wrote {number}"
        with open(repository.worktree / "person.md", "a", encoding="utf-8") as file:
            file.write(line + "\n")
        # Git refuses at once when index.lock or HEAD is taken; the draft stays and goes along next time.
        if _try_git(repository, "commit", "-qa", "-m", line):
            done.append([_git(repository, "log", "-1", "--format=%H", "--author=Person").strip(), line])
    _try_git(repository, "commit", "-qa", "-m", "The rest")
    return done


def kill(folder: Path, kills: int) -> str:
    """End a writer by SIGKILL at random moments; what came of it.

    Raises:
        Lost: the repository does not open, HEAD is not whole, or a draft changed.
    """
    repository = made(folder)
    drafts = {"person.md": b"a person's draft\n", "new.md": b"\xffuntracked\r\n"}
    for path, data in drafts.items():
        (repository.worktree / path).write_bytes(data)
    chosen, landed, unfinished = random.Random(1), 0, 0
    command = [sys.executable, str(Path(__file__).resolve()), "churn", str(repository.git_dir)]
    for number in range(kills):
        before = repository.head()
        process = subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # it writes now
        time.sleep(chosen.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        errors = process.communicate()[1]
        if errors:
            raise Lost(f"the writer failed: {errors.decode()}")
        unfinished += (repository.git_dir / "letta.landing").exists()
        healed = MemoryRepository.open(repository.git_dir)
        for path, data in drafts.items():
            if (repository.worktree / path).read_bytes() != data:
                raise Lost(f"after kill {number} the draft {path} changed")
        if {draft.path for draft in healed.status()} != drafts.keys():
            raise Lost(f"after kill {number}: drafts {healed.status()}")
        if len({healed.snapshot().read(path).split(b"\n")[3] for path in _FILES}) != 1:
            raise Lost(f"after kill {number} HEAD mixes two commits")
        landed += healed.head() != before
        _content(healed, drafts=True)
        healed.commit(Put({"after.md": b"kill %d\n" % number}), "After", Author("A", "a@example.org"))
    return (
        f"{kills} kills: {unfinished} in the middle of a commit, {landed} after at least one; "
        "each time HEAD whole, fsck clean, drafts as they were"
    )


def churn(git_dir: Path, name: str) -> None:
    """Commit for ever, all files at once."""
    repository = MemoryRepository.open(git_dir)
    number = 0
    print("ready", flush=True)
    while True:
        number += 1
        text = f"---\ndescription: Shared.\n---\n{name} {number}\n".encode()
        repository.commit(Put(dict.fromkeys(_FILES, text)), "Churn", Author("C", "c@example.org"))


def _content(repository: MemoryRepository, drafts: bool = False) -> None:
    if said := _git(repository, "fsck", "--strict", "--no-dangling"):
        raise Lost(f"git fsck: {said}")
    status = _git(repository, "status", "--porcelain")
    if status and not drafts:
        raise Lost(f"git status: {status}")
    if [line for line in status.splitlines() if not line.startswith(("??", " M"))]:
        raise Lost(f"the index is not as HEAD: {status}")


def _try_git(repository: MemoryRepository, *words: str) -> bool:
    return _run_git(repository, *words).returncode == 0


def _git(repository: MemoryRepository, *words: str) -> str:
    done = _run_git(repository, *words)
    if done.returncode:
        raise Lost(f"git {' '.join(words)}: {done.stderr}")
    return done.stdout + done.stderr


def _run_git(repository: MemoryRepository, *words: str) -> subprocess.CompletedProcess[str]:
    who = ["-c", "user.name=Person", "-c", "user.email=p@example.org"]
    return subprocess.run(
        ["git", *who, *words],
        cwd=repository.worktree,
        env={"PATH": os.environ["PATH"], "HOME": str(repository.git_dir.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="memory under many writers and under kill -9")
    parts = parser.add_subparsers(dest="what", required=True)
    for name in ("race", "kill"):
        part = parts.add_parser(name)
        part.add_argument("--writers", type=int, default=8)
        part.add_argument("--writes", type=int, default=100)
        part.add_argument("--kills", type=int, default=200)
    for name in ("write", "churn"):
        part = parts.add_parser(name)
        part.add_argument("git_dir", type=Path)
        part.add_argument("name")
        part.add_argument("writes", type=int, nargs="?", default=0)
    given = parser.parse_args()
    if given.what == "write":
        write(given.git_dir, given.name, given.writes)
    elif given.what == "churn":
        churn(given.git_dir, given.name)
    else:
        with tempfile.TemporaryDirectory() as folder:
            try:
                if given.what == "race":
                    print(race(Path(folder), given.writers, given.writes))
                else:
                    print(kill(Path(folder), given.kills))
            except Lost as error:
                print(f"LOST: {error}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
