"""Which files a shell command may open beside those that it names: below the folders that it goes through.

Programs follow links that they are given (`find -exec cat`, `xargs cat`) or meet (`diff -r`), and print files
that a person keeps closed. File names are listed; nothing is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from letta_code.tools.shell_code.paths import Places
from letta_code.tools.shell_code.searching import Search, Wanted, only_lists, searching
from letta_code.tools.shell_code.syntax import ShellCode, SimpleCommand
from letta_code.tools.shell_code.wrappers import base_name

MOST_ENTRIES = 20_000
"""Files and folders that are listed for one command; where there are more it is asked about."""

_ONLY_NAMES = frozenset(
    {"ls", "stat", "file", "basename", "dirname", "realpath", "readlink", "echo", "printf"}
)
_COUNTS = frozenset({"wc", "du", "cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum"})
_REPOSITORY = ("HEAD", "objects", "refs")


class TooMany(Exception):
    """There is more below the folders than is listed."""


def reached(code: ShellCode, reading: list[SimpleCommand], places: Places) -> Iterator[Path]:
    """The links and files below folders that `reading` commands may print.

    Raises:
        TooMany: they cannot be listed.
    """
    names = [base_name(simple.argv[0] or "") for simple in code.commands]
    prints = any(
        name not in _ONLY_NAMES | _COUNTS | {"find", "xargs", "cd", "git"}
        and None in simple.argv
        and not only_lists(simple)
        for name, simple in zip(names, code.commands, strict=True)
    )
    for simple in reading:
        name = base_name(simple.argv[0] or "")
        words = [part for part in simple.argv[1:] if part is not None]
        if name == "diff" and any(re.match(r"-[A-Za-z]*r|--rec", part) for part in words):
            yield from _below(_folders(words, places), lambda file: True)
        elif (search := searching(simple)) and not only_lists(simple):
            wanted, folders = Wanted.by(simple), _searched(simple, search, places)
            roots = [os.path.realpath(folder).rstrip("/") for folder in folders]
            for path in _below(folders, wanted):
                inside = [str(path)[len(root) :] for root in roots if f"{path}".startswith(f"{root}/")]
                dotted = all("/." in each for each in inside)
                if (name != "rg" or not dotted or wanted.shows_hidden(path.name)) and not path.is_symlink():
                    yield path
        elif name == "find" and prints and any(part.startswith(("-exec", "-ok")) for part in words):
            yield from _below(
                _folders([*_before_options(words), *simple.choices], places), _find_filter(simple)
            )
    if prints and "xargs" in names and any(_name(each) == "xargs" for each in reading):
        before = code.commands[: names.index("xargs")]
        finds = [each for each in before if _name(each) == "find"]
        only = len(finds) == 1 and {_name(each) for each in before} <= {
            "find",
            "head",
            "tail",
            "sort",
            "uniq",
        }
        yield from _below(list(places.folders), _find_filter(finds[0]) if only else lambda file: True)


def brings_a_repository(folder: Path, project: Path) -> bool:
    """Whether Git would take `folder`, or one above it in the project, for a bare repository: with a
    configuration of its own, and so with programs."""
    for each in (folder, *folder.parents):
        if os.path.lexists(each / ".git"):
            return False
        if all(os.path.lexists(each / part) for part in _REPOSITORY):
            return True
        if each == project:
            return False
    return False


def _name(simple: SimpleCommand) -> str:
    return base_name(simple.argv[0] or "")


def _words(simple: SimpleCommand) -> list[str]:
    return [part for part in simple.argv[1:] if part is not None]


def _searched(simple: SimpleCommand, search: Search, places: Places) -> list[Path]:
    """The folders that `grep -r` or `rg` goes through; where it is, too, when it names none for sure."""
    known = [word for word in search.operands if word is not None]
    named = [path for word in known for path in places.paths(word, globs=True) if path.is_dir()]
    sure = search.sure and 0 < len(known) == len(search.operands)
    return named if sure else [*named, *places.folders]


def _folders(words: list[str], places: Places) -> list[Path]:
    known = [part for part in words if not part.startswith("-")]
    given = [path for folder in places.folders for part in known for path in places.meant(folder, part)]
    return [folder for folder in given if folder.is_dir()] or list(places.folders)


def _before_options(words: list[str]) -> list[str]:
    end = next((at for at, part in enumerate(words) if part.startswith(("-", "(", "!"))), len(words))
    return words[:end]


def _find_filter(simple: SimpleCommand) -> Callable[[str], bool]:
    """By the first `-name`, where nothing makes it one of several conditions and nothing acts before it."""
    words = simple.argv[1:]
    at = words.index("-name") + 1 if "-name" in words[:-1] else 0
    pattern = words[at] if words else None
    acts = any(part is None or part.startswith(("-exec", "-ok", "-print", "-ls")) for part in words[:at])
    if not at or pattern is None or acts or {"-o", "-or", ",", "!", "-not", "(", None} & set(words[:at]):
        return lambda file: True
    if {"-o", "-or", ","} & set(words):
        return lambda file: True
    return lambda file: fnmatchcase(file, pattern)


def _below(folders: list[Path], kept: Callable[[str], bool]) -> Iterator[Path]:
    seen = 0
    for folder in dict.fromkeys(folders):
        for base, subfolders, files in os.walk(os.path.realpath(folder)):
            if ".git" in subfolders:
                subfolders.remove(".git")
            seen += len(subfolders) + len(files)
            if seen > MOST_ENTRIES:
                raise TooMany
            for name in files:
                if kept(name):
                    yield Path(base, name)
            for name in subfolders:
                if kept(name) and os.path.islink(f"{base}/{name}"):
                    yield Path(base, name)
