"""Which files a shell command may open beside those that it names: below the folders that it goes through.

Programs follow links that they are given (`find -exec cat`, `xargs cat`) or meet (`diff -r`), and print files
that a person keeps closed. File names are listed; nothing is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from letta_code.tools.shell_code.paths import Places, candidates, pattern_at
from letta_code.tools.shell_code.syntax import ShellCode, SimpleCommand
from letta_code.tools.shell_code.words import braces
from letta_code.tools.shell_code.wrappers import base_name

MOST_ENTRIES = 20_000
"""Files and folders that are listed for one command; where there are more it is asked about."""

_ONLY_NAMES = frozenset(
    {"ls", "stat", "file", "basename", "dirname", "realpath", "readlink", "echo", "printf"}
)
_COUNTS = frozenset({"wc", "du", "cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum"})
_HARMLESS_TYPES = frozenset(
    {"c", "cpp", "css", "go", "html", "java", "js", "kotlin", "md", "php", "py", "ruby", "rust", "sh", "ts"}
)
"""Types of files of ripgrep that hold no secrets by their names."""
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
            below = _below(_searched(simple, places), Wanted.by(simple))
            yield from (path for path in below if not path.is_symlink())
        elif name == "rg" and not _only_lists(simple):
            for path in _below(_searched(simple, places), wanted := Wanted.by(simple)):
                dotted = any(part.startswith(".") for part in path.parts[-2:])
                if (not dotted or wanted.shows_hidden(path.name)) and not path.is_symlink():
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
    name, words = _name(simple), _words(simple)
    valued = {"rg": "A-FMTdefgjmrt", "grep": "A-Ddefm"}.get(name.removeprefix("e").removeprefix("f"))
    return (
        valued is not None
        and "--json" not in words
        and any(re.match(rf"-[^{valued}-]*[lLcq]|--(?:files|count|quiet)", part) for part in words)
    )


def _recursive(words: list[str]) -> bool:
    return any(re.match(r"-[A-Za-z]*r|--rec", part) for part in words)


def _searched(simple: SimpleCommand, places: Places) -> list[Path]:
    """The folders that `grep -r` or `rg` goes through; where it is, too, when what looks like one of them may
    be what it searches for."""
    found = _folders([*candidates(simple), *simple.choices], places)
    return found if pattern_at(simple) is not None else [*found, *places.folders]


def _folders(words: list[str], places: Places) -> list[Path]:
    known = [part for part in words if not part.startswith("-")]
    given = [path for folder in places.folders for part in known for path in places.meant(folder, part)]
    return [folder for folder in given if folder.is_dir()] or list(places.folders)


def _before_options(words: list[str]) -> list[str]:
    end = next((at for at, part in enumerate(words) if part.startswith(("-", "(", "!"))), len(words))
    return words[:end]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which files `grep -r` or `rg` looks at by their names, as far as the options are understood. Where
    something is included, what is excluded does not matter here. `hidden`: names with a dot, too."""

    included: tuple[str, ...]
    excluded: tuple[str, ...]
    hidden: bool

    @classmethod
    def by(cls, simple: SimpleCommand) -> Wanted:
        """What the options of this command say."""
        included, excluded = list[str](), list[str]()
        words = simple.argv[1:]
        for part, behind in zip((*words, *simple.choices), (*words[1:], None, *simple.choices), strict=False):
            option = re.match(
                r"(?:(-g|-t)(.+)?|(--i?glob|--type|--include|--exclude)(?:=(.*))?)\Z", part or ""
            )
            if option is None:
                if re.match(r"-[A-Za-z]*[gt]|--(?:inc|type)", part or ""):
                    included.append("*")
                continue
            name = option[1] or option[3]
            value = option[2] or option[4] or behind or ("" if name == "--exclude" else "*")
            if name in ("-t", "--type"):
                included.append(f"*.{value}" if value in _HARMLESS_TYPES else "*")
            elif name == "--exclude" or value.startswith("!"):
                excluded.append(value.removeprefix("!"))
            else:
                included += _last_parts(value)
        exact = [glob for glob in excluded if not re.search(r"[/{\[\\]", glob)]
        hidden = any(re.match(r"-[A-Za-z]*[u.]|--(?:hid|unr)", part) for part in _words(simple))
        return cls(tuple(included), tuple(exact), hidden)

    def __call__(self, name: str) -> bool:
        """Whether a file of this name may be looked at."""
        if self.included:
            return self._includes(name)
        return not any(fnmatchcase(name, glob) for glob in self.excluded)

    def shows_hidden(self, name: str) -> bool:
        """Whether `rg` looks at this name, which begins with a dot: what it is asked for is not hidden."""
        return self.hidden or self._includes(name)

    def _includes(self, name: str) -> bool:
        return any(fnmatchcase(name.casefold(), glob.casefold()) for glob in self.included)


def _last_parts(glob: str) -> tuple[str, ...]:
    """What a glob says about the last part of a path; what is not understood stands for every name."""
    last = glob.rstrip("/").rsplit("/", 1)[-1]
    return ("*",) if last in ("", "**") or re.search(r"[\[\\]", glob) else braces(last) or ("*",)


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
