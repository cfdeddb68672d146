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

from letta_code.tools.shell_code.paths import Places, candidates
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
        and not _only_lists(simple)
        for name, simple in zip(names, code.commands, strict=True)
    )
    for simple in reading:
        name = base_name(simple.argv[0] or "")
        words = [part for part in simple.argv[1:] if part is not None]
        if name == "diff" and any(re.match(r"-[A-Za-z]*r|--rec", part) for part in words):
            yield from _below(_folders(words, places), lambda file: True)
        elif name in ("grep", "egrep", "fgrep") and _recursive(words) and not _only_lists(simple):
            folders = _folders([*candidates(simple), *simple.choices], places)
            below = _below(folders, _grep_filter([*words, *simple.choices]))
            yield from (path for path in below if not path.is_symlink())
        elif name == "rg" and not _only_lists(simple):
            hidden = any(re.match(r"-[A-Za-z]*[u.]|--hidden", part) for part in words)
            folders = _folders([*candidates(simple), *simple.choices], places)
            for path in _below(folders, _grep_filter([*words, *simple.choices])):
                shown = hidden or not any(part.startswith(".") for part in path.parts[-2:])
                if shown and not path.is_symlink():
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


def _only_lists(simple: SimpleCommand) -> bool:
    return _name(simple) in ("grep", "egrep", "fgrep", "rg") and any(
        re.match(r"-[A-Za-z]*[lLcq]|--(?:files|count|quiet)", part) for part in _words(simple)
    )


def _recursive(words: list[str]) -> bool:
    return any(re.match(r"-[A-Za-z]*r|--rec", part) for part in words)


def _folders(words: list[str], places: Places) -> list[Path]:
    known = [part for part in words if not part.startswith("-")]
    given = [path for folder in places.folders for part in known for path in places.meant(folder, part)]
    return [folder for folder in given if folder.is_dir()] or list(places.folders)


def _before_options(words: list[str]) -> list[str]:
    end = next((at for at, part in enumerate(words) if part.startswith(("-", "(", "!"))), len(words))
    return words[:end]


def _grep_filter(words: list[str]) -> Callable[[str], bool]:
    values: dict[str, list[str]] = {"include": [], "exclude": []}
    for part, behind in zip(words, [*words[1:], ""], strict=False):
        if match := re.match(r"--(include|exclude)=(.*)", part, re.DOTALL):
            values[match[1]].append(match[2])
        elif part in ("-g", "--glob"):
            values["exclude" if behind.startswith("!") else "include"].append(behind.lstrip("!"))
        elif part in ("-t", "--type"):
            values["include"].append(f"*.{behind}")
    return lambda file: (
        (not values["include"] or any(fnmatchcase(file, each) for each in values["include"]))
        and not any(fnmatchcase(file, each) for each in values["exclude"])
    )


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
