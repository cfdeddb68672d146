"""`grep` and `rg` as they read their own options: what is the pattern, which folders they go through, and
which names they look at there. `sed`, `awk` and `jq`, too, as far as their first operand is a program.

Where an option is not known, nothing is concluded from the others: every word may be a file, and every file
below is looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from letta_code.tools.shell_code.syntax import SimpleCommand
from letta_code.tools.shell_code.words import Word, braces
from letta_code.tools.shell_code.wrappers import base_name


@dataclass(frozen=True, slots=True)
class _Language:
    """The options of a program: `valued` letters and long `names` take a value, long `flags` and all
    other letters take none. `short`: long ones may be abbreviated."""

    valued: str
    names: frozenset[str]
    flags: frozenset[str]
    short: bool = False


_GREP = _Language(
    "ABCDdefm",
    frozenset(
        {
            *(
                "after-context",
                "before-context",
                "binary-files",
                "context",
                "devices",
                "directories",
                "exclude",
            ),
            *(
                "exclude-dir",
                "exclude-from",
                "file",
                "group-separator",
                "include",
                "label",
                "max-count",
                "regexp",
            ),
        }
    ),
    frozenset(
        {
            *(
                "basic-regexp",
                "byte-offset",
                "color",
                "colour",
                "count",
                "dereference-recursive",
                "extended-regexp",
            ),
            *("files-with-matches", "files-without-match", "fixed-strings", "ignore-case", "initial-tab"),
            *(
                "invert-match",
                "line-buffered",
                "line-number",
                "line-regexp",
                "no-filename",
                "no-group-separator",
            ),
            *("no-ignore-case", "no-messages", "null", "null-data", "only-matching", "perl-regexp", "quiet"),
            *("recursive", "silent", "text", "with-filename", "word-regexp"),
        }
    ),
    short=True,
)
_RG = _Language(
    "ABCEMTdefgjmrt",
    frozenset(
        {
            *(
                "after-context",
                "before-context",
                "color",
                "colors",
                "context",
                "encoding",
                "engine",
                "file",
                "glob",
            ),
            *(
                "iglob",
                "ignore-file",
                "max-columns",
                "max-count",
                "max-depth",
                "max-filesize",
                "regexp",
                "replace",
            ),
            *("sort", "sortr", "threads", "type", "type-add", "type-clear", "type-not"),
        }
    ),
    frozenset(
        {
            *("case-sensitive", "column", "count", "count-matches", "crlf", "files", "files-with-matches"),
            *("files-without-match", "fixed-strings", "follow", "glob-case-insensitive", "heading", "hidden"),
            *(
                "ignore-case",
                "invert-match",
                "json",
                "line-number",
                "line-regexp",
                "multiline",
                "multiline-dotall",
            ),
            *("no-config", "no-filename", "no-heading", "no-ignore", "no-ignore-vcs", "no-line-number"),
            *(
                "no-messages",
                "null",
                "only-matching",
                "passthru",
                "pcre2",
                "pretty",
                "quiet",
                "smart-case",
                "stats",
            ),
            *("text", "trim", "unrestricted", "vimgrep", "with-filename", "word-regexp"),
        }
    ),
)
_FILTERS = {
    "sed": _Language(
        "efl", frozenset({"expression", "file"}), frozenset({"quiet", "silent", "regexp-extended"})
    ),
    "jq": _Language(
        "fL", frozenset(), frozenset({"compact-output", "raw-output", "slurp", "sort-keys", "tab"})
    ),
    **dict.fromkeys(("awk", "gawk", "mawk"), _Language("Fvf", frozenset(), frozenset())),
}
_GREPS = frozenset({"grep", "egrep", "fgrep"})
_HARMLESS_TYPES = frozenset(
    {"c", "cpp", "css", "go", "html", "java", "js", "kotlin", "md", "php", "py", "ruby", "rust", "sh", "ts"}
)
"""Types of files of ripgrep that hold no secrets by their names."""


@dataclass(frozen=True, slots=True)
class Search:
    """The options of a command (letters or long names, with their values) and its other words, with their
    places among the arguments. `sure`: nothing in it is unknown."""

    options: tuple[tuple[str, str], ...]
    others: tuple[tuple[int, Word], ...]
    sure: bool

    def given(self, *names: str) -> bool:
        """Whether one of these options is there."""
        return any(name in names for name, _ in self.options)

    @property
    def pattern(self) -> int:
        """The place of what is searched for, or of the program; -1 when there is none, or it is not sure."""
        named = self.given("e", "f", "regexp", "file", "files", "expression")
        return self.others[0][0] if self.sure and self.others and not named else -1

    @property
    def operands(self) -> list[Word]:
        """The words that may be files or folders."""
        return [word for _, word in self.others[0 if self.pattern < 0 else 1 :]]


@lru_cache(maxsize=64)
def read_options(simple: SimpleCommand) -> Search | None:
    """The command as its program reads it; None for other programs than these."""
    name = base_name(simple.argv[0] or "")
    language = _GREP if name in _GREPS else _RG if name == "rg" else _FILTERS.get(name)
    if language is None:
        return None
    words, sure = _with_choices(simple)
    options, others = list[tuple[str, str]](), list[tuple[int, Word]]()
    while words:
        at, part = words.pop(0)
        if part == "--":
            others += words
            break
        if part is None or not part.startswith("-") or part == "-":
            others.append((at, part))
            continue
        found, missing = _options_in(part, language)
        sure = sure and bool(found)
        if missing and words:
            value = words.pop(0)[1]
            sure = sure and value is not None
            found[-1] = (found[-1][0], value or "")
        expands = simple.argv[at + 1] is None and re.search(r"[*?\[]", part)
        options += [each for each in found if not (expands and each[0] == "exclude")]  # it may leave out less
    if others and simple.argv[others[0][0] + 1] is None and re.search(r"[*?\[]", others[0][1] or ""):
        sure = False  # a glob in place of the pattern becomes several words
    return Search(tuple(options), tuple(others), sure)


def _with_choices(simple: SimpleCommand) -> tuple[list[tuple[int, Word]], bool]:
    """The arguments with their places, unknown ones replaced by what they are; whether that is certain."""
    unknown = simple.argv.count(None)
    choices = list(simple.choices)
    if not unknown or simple.unlisted:
        return list(enumerate(simple.argv[1:])), True
    words: list[tuple[int, Word]] = []
    for at, part in enumerate(simple.argv[1:]):
        if part is not None:
            words.append((at, part))
        elif unknown == 1:
            words += [(at, choice) for choice in choices]
        else:
            words.append((at, choices.pop(0) if len(simple.choices) == unknown else None))
    listed = unknown == 1 or len(simple.choices) == unknown
    return words, listed or not any(choice.startswith("-") for choice in simple.choices)


def _options_in(part: str, language: _Language) -> tuple[list[tuple[str, str]], bool]:
    """The options in one word, none when it is not known; whether the next word is the value of the last."""
    if part.startswith("--"):
        name, equals, value = part[2:].partition("=")
        known = language.names | language.flags
        meant = {name} & known or {each for each in known if language.short and each.startswith(name)}
        if len(meant) != 1:
            return [], False
        (name,) = meant
        return [(name, value)], name in language.names and not equals
    for at, letter in enumerate(part[1:], 1):
        if letter in language.valued:
            return [*((each, "") for each in part[1:at]), (letter, part[at + 1 :])], not part[at + 1 :]
    return [(letter, "") for letter in part[1:]], False


def searching(simple: SimpleCommand) -> Search | None:
    """The options of an `rg`, or of a `grep` that goes through folders."""
    name, found = base_name(simple.argv[0] or ""), read_options(simple)
    if found is None or name not in _GREPS | {"rg"}:
        return None
    deep = name == "rg" or not found.sure or found.given("r", "R", "recursive", "dereference-recursive")
    return found if deep else None


def only_lists(simple: SimpleCommand) -> bool:
    """Whether it prints names and numbers, and nothing that is in the files."""
    found = read_options(simple)
    if found is None or not found.sure or found.given("json"):
        return False
    lists = ("l", "c", "q", "count", "count-matches", "files", "files-with-matches", "files-without-match")
    searches = base_name(simple.argv[0] or "") in _GREPS | {"rg"}
    listed = found.given(*lists, "quiet", "silent")
    return searches and (listed or (base_name(simple.argv[0] or "") != "rg" and found.given("L")))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which files `grep -r` or `rg` looks at by their names. `narrows`: what is not included is left out.
    `hidden`: names with a dot, too. Where something is included and excluded, the last option decides; here
    it counts as included."""

    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    narrows: bool = False
    hidden: bool = True

    @classmethod
    def by(cls, simple: SimpleCommand) -> Wanted:
        """What the options of this command say."""
        found = read_options(simple)
        if found is None or not found.sure:
            return cls()
        included, excluded, first = list[str](), list[str](), ""
        for name, value in found.options:
            if name in ("t", "type"):
                included.append(f"*.{value}" if value in _HARMLESS_TYPES else "*")
            elif name in ("type-add", "type-clear", "type-not", "T"):
                included.append("*")
            elif name in ("g", "glob", "iglob") and value.startswith("!"):
                excluded.append(value[1:])
            elif name in ("g", "glob", "iglob", "include"):
                included += _last_parts(value)
                first = first or name
            elif name == "exclude":
                excluded.append(value)
                first = first or name
        exact = tuple(glob for glob in excluded if not re.search(r"[/{\[\\]", glob))
        hidden = found.given("u", ".", "unrestricted", "hidden")
        return cls(tuple(included), exact, bool(included) and first != "exclude", hidden)

    def __call__(self, name: str) -> bool:
        """Whether a file of this name may be looked at."""
        if self.narrows or self._includes(name):
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
