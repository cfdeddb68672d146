"""Which files the words of a shell command may name, and in which folders it may be when it does.

Errs on the side of too many: a word is left out only where it cannot be a path. Nothing is opened; file
names are listed where globs ask for them. Names that a program finds out by itself (below a folder, in
another program's output through `xargs`) are not known here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from glob import iglob
from itertools import islice
from pathlib import Path

from letta_code.tools.shell_code.searching import read_options
from letta_code.tools.shell_code.syntax import ShellCode, SimpleCommand
from letta_code.tools.shell_code.wrappers import base_name

MOST = 2_000
"""Paths of one command that are looked at; a command with more is asked about."""

_MOST_FOLDERS = 16
_NO_PATHS = frozenset(
    {
        *(":", "basename", "date", "df", "dirname", "echo", "expr", "false", "free", "hostname", "id"),
        *("nproc", "printf", "ps", "pwd", "seq", "sleep", "tr", "true", "type", "uname", "uptime"),
        *("which", "whoami", "xargs"),
    }
)
_VALUES = {  # letters of options whose values are no paths
    **dict.fromkeys(("grep", "egrep", "fgrep"), "ABCme"),
    "rg": "ABCEMTdegjmrt",
    **{"cut": "dfcb", "sort": "tk", "paste": "d", "column": "so", "join": "to12", "head": "nc"},
    **{"sed": "e", "awk": "Fv", "gawk": "Fv", "mawk": "Fv"},
    **{"tail": "nc", "nl": "sbv", "fold": "w", "od": "ANtj", "tree": "LI"},
}
_FOLLOWS_LINKS = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), r"-[A-Za-z]*[Rd].*|--d.*"),
    "ls": r"-[A-Za-z]*(?:L[A-Za-z]*R|R[A-Za-z]*L).*",
    "rg": r"-[A-Za-z]*L|--follow",
    "find": r"-L|-follow|-files0-from|.*\{\}.*\.\..*",
    "du": r"--f.*",
    "wc": r"--f.*",
    "file": r"-[A-Za-z]*f.*|--f.*",
}
_STANDARD = re.compile(r"-|/dev/(?:null|stdin|stdout|stderr|fd/[0-9])")
_BAD_GLOB = re.compile(r"(?:\A|/)\.[^/]*[*?\[]")  # may be `..` in some versions of bash


class Places:
    """The folders that a command may be in: `start`, and those it changes to. `unknown` when that
    cannot be told."""

    def __init__(self, code: ShellCode, start: Path, home: str, memory: Path | None = None) -> None:
        """`memory` is what `$MEMORY_DIR` stands for."""
        self._memory = memory
        self.folders = [start]
        self.unknown = False
        if code.enters is not None:  # nothing but this `cd` runs where it starts
            self._enter(code.enters)
            self.folders = self.folders[1:] if len(self.folders) > 1 else self.folders
        for simple in code.commands[0 if code.enters is None else 1 :]:
            for target in self._targets(simple, home):
                self._enter(target)

    def _targets(self, simple: SimpleCommand, home: str) -> list[str | None]:
        name, words = base_name(simple.argv[0] or ""), simple.argv[1:]
        if name == "git":
            given = [words[at + 1] for at in range(len(words) - 1) if words[at] == "-C"]
        elif name == "cd":
            given = [part for part in words if part is None or not re.fullmatch(r"-[LPe@]+|--", part)]
            given = [None if part == "-" else part for part in given or [home]]
        else:
            return [None] if name in ("pushd", "popd") else []
        if None in given and simple.choices and not simple.unlisted:
            return [*(part for part in given if part is not None), *simple.choices]
        return given

    def _enter(self, target: str | None) -> None:
        if target is None or re.search(r"[*?\[]", target) or len(self.folders) > _MOST_FOLDERS:
            self.unknown = True
            return
        for folder in list(self.folders):
            for entered in self.meant(folder, target):
                # bash goes up by the name it knows, programs by where a link really leads
                for each in (entered, Path(os.path.normpath(entered))):
                    if each not in self.folders:
                        self.folders.append(each)

    def paths(self, word: str, *, globs: bool = False) -> Iterator[Path]:
        """Every path that `word` may mean, not resolved."""
        for folder in self.folders:
            for spelled in self._spelled(folder, word):
                yield folder / spelled
                if globs and not word.startswith("-") and re.search(r"[*?\[]", word):
                    pattern = "/".join(re.sub(r"\[.*", "*", part) for part in spelled.split("/"))
                    for found in islice(iglob(pattern, root_dir=folder), MOST):
                        yield folder / found

    def meant(self, folder: Path, word: str) -> list[Path]:
        """Every path that `word` may mean in `folder`."""
        return [folder / spelled for spelled in self._spelled(folder, word)]

    def _spelled(self, folder: Path, word: str) -> list[str]:
        """`word` with `~` and `$MEMORY_DIR` expanded, and also as it is where such a name exists: it may
        have been quoted."""
        first, _, rest = word.partition("/")
        expanded = os.path.expanduser(word)
        if first in ("$MEMORY_DIR", "${MEMORY_DIR}"):
            expanded = f"{self._memory or ''}/{rest}"
        return [expanded, *([word] if expanded != word and os.path.lexists(folder / first) else [])]


def candidates(simple: SimpleCommand) -> list[str]:
    """The known words of this command that may name a file, and parts of them that may."""
    return _with_parts(_known_words(simple))


def listed(simple: SimpleCommand) -> list[str]:
    """The same for what its unknown words may be; globs in it stand for file names."""
    words = list(simple.choices)
    if base_name(simple.argv[0] or "") in _NO_PATHS:  # the shell itself looks for the names of a glob
        words = [part for part in words if re.search(r"[*?\[]", part)]
    return _with_parts(words)


def _with_parts(words: list[str]) -> list[str]:
    found: list[str] = []
    for part in words:
        if _STANDARD.fullmatch(part):
            continue
        found.append(part)
        if part.startswith("-"):
            letters = re.match(r"-[A-Za-z0-9]+", part)
            end = letters.end() if letters else 0
            found += [part[at:] for at in range(2, end + 1) if part[at:]]
        value = part.partition("=")[2]
        if value and not _STANDARD.fullmatch(value):
            found.append(value)
        if part.startswith("@"):
            found.append(part[1:])  # options from a file
    return list(dict.fromkeys(found))


def hands_over_names(commands: list[SimpleCommand]) -> bool:
    """Whether an `xargs` behind these commands gets nothing but names of files found in folders."""
    return all(map(_lists_names, commands)) and any(
        base_name(simple.argv[0] or "") not in ("xargs", "cd") for simple in commands
    )


def _lists_names(simple: SimpleCommand) -> bool:
    name, words = base_name(simple.argv[0] or ""), simple.argv[1:]
    known = [part for part in words if part is not None]
    if simple.wrapper or name in ("cd", "ls"):
        return True
    if name == "find":
        return not any((part.startswith("-") and "printf" in part) or part == "-exec" for part in known)
    if name == "git":
        return "ls-files" in known
    if name in ("grep", "rg", "egrep", "fgrep"):
        if any(re.match(r"-[A-Za-z]*[or]|--(?:o|re)", part) and "l" not in part for part in known):
            return False
        if any(re.fullmatch(r"-[A-Za-z]*l[A-Za-z]*|--files.*", part) for part in known):
            return True
    elif name not in ("head", "tail", "sort", "uniq"):
        return False
    return len(known) == len(words) and all(part.startswith("-") for part in _known_words(simple))


def _known_words(simple: SimpleCommand) -> list[str]:
    name, words = base_name(simple.argv[0] or ""), list(simple.argv[1:])
    if name in _NO_PATHS:
        return []
    pattern = _pattern_at(simple)
    kept: list[str] = []
    letters = _VALUES.get(name, "\0")
    skip = False
    for index, part in enumerate(words):
        if skip or part is None or index == pattern:
            skip = False
            continue
        if re.match(rf"-[{letters}]", part):
            skip = len(part) == 2
            continue
        kept.append(part)
    return kept


def _pattern_at(simple: SimpleCommand) -> int:
    """The place among the arguments of a word that is no path, before all others; -1 when there is none, or
    it is not sure."""
    if search := read_options(simple):
        return search.pattern
    first = simple.argv[1:2]
    return 0 if base_name(simple.argv[0] or "") == "git" and first[0:1] and (first[0] or "").isalpha() else -1


def unknown_names(simple: SimpleCommand) -> str:
    """Why the files that this command reads cannot be told; empty when they can."""
    name, words = base_name(simple.argv[0] or ""), simple.argv[1:]
    if name in _NO_PATHS:
        return ""
    if (follows := _FOLLOWS_LINKS.get(name)) and any(part and re.fullmatch(follows, part) for part in words):
        return f"`{name}` follows links or lists here"
    if any(map(_BAD_GLOB.search, simple.choices)) or any(_odd_home(part) for part in words if part):
        return f"what `{name}` reads is only known when it runs"
    if not simple.unlisted:
        return ""
    at = _pattern_at(simple)
    if (
        simple.unlisted == "inherited"
        and at is not None
        and at >= 0
        and words[at] is None
        and words.count(None) == 1
    ):
        return ""  # what is searched for
    return f"what `{name}` reads is only known when it runs"


def _odd_home(part: str) -> bool:
    """Whether bash would expand the `~` in another way than to a known home."""
    return bool(re.match(r"~[^/]", part)) and os.path.expanduser(part) == part
