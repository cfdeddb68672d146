"""Which shell commands are known to only read, by name and by their arguments.

A list of what is harmless, never of what is harmful: what is not on it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from letta_code.tools.shell_code.filters import OPERAND, awk_reads, jq_reads, sed_reads, split
from letta_code.tools.shell_code.syntax import ShellCode, SimpleCommand, parse
from letta_code.tools.shell_code.words import Word

_ANY_ARGUMENTS = frozenset(
    {
        *(
            ":",
            "arch",
            "b2sum",
            "basename",
            "break",
            "cat",
            "cd",
            "cksum",
            "cmp",
            "column",
            "comm",
            "continue",
        ),
        *("cut", "df", "diff", "dirname", "du", "echo", "egrep", "exit", "expand", "expr", "false", "fgrep"),
        *("fmt", "fold", "free", "grep", "groups", "head", "hexdump", "id", "join", "ls", "lscpu", "md5sum"),
        *("nl", "nproc", "od", "paste", "pwd", "readlink", "realpath", "return", "rev", "seq", "sha1sum"),
        *(
            "sha224sum",
            "sha256sum",
            "sha384sum",
            "sha512sum",
            "sleep",
            "stat",
            "strings",
            "sum",
            "tac",
            "tail",
        ),
        *("tr", "true", "type", "uname", "unexpand", "uptime", "wc", "which", "whoami"),
    }
)
_PRINTS_VERSION = {
    **dict.fromkeys(("python", "python3"), ("--version", "-V")),
    **{"node": ("--version", "-v"), "npm": ("--version", "-v"), "go": ("version",), "java": ("-version",)},
    **dict.fromkeys(("bash", "curl", "docker", "gcc", "gh", "git", "jq", "make"), ("--version",)),
    **dict.fromkeys(("rg", "ruby", "sed", "tar", "uv"), ("--version",)),
}
_GIT_READS = frozenset(
    {
        *("blame", "cat-file", "check-ignore", "cherry", "count-objects", "describe", "diff", "diff-index"),
        *("diff-tree", "for-each-ref", "grep", "log", "ls-files", "ls-tree", "merge-base", "name-rev"),
        *("rev-list", "rev-parse", "shortlog", "show", "show-ref", "status", "version", "whatchanged"),
    }
)
_GIT_ACTS = (
    *("--output", "--ext-diff", "--open-files-in-pager", "--filters", "--textconv", "--exec"),
    *("--upload-pack", "--show-signature"),
)
_GIT_LISTING = re.compile(
    r"-[arvl]+|-vv|-n\d*|--(?:list|all|remotes|verbose|show-current|no-color|column|ignore-case|sort=.*"
    r"|format=.*|contains=.*|merged=.*|no-merged=.*|points-at=.*)"
)
_GIT_SELECTS = ("--contains", "--no-contains", "--merged", "--no-merged", "--points-at", "--sort", "--format")
_GIT_SUBCOMMANDS = {
    "stash": ("list", "show"),
    "worktree": ("list",),
    "remote": ("get-url",),
    "config": ("--get", "--get-all", "get"),
    "notes": ("list", "show"),
}
_FIND_ACTS = ("-delete", "-fprint", "-fls", "-execdir", "-ok")


def only_reads(command: str) -> bool:
    """Whether everything in `command` is known to change nothing (network and devices included)."""
    code = parse(command)
    return bool(code.commands) and not code.unknown and not code.recursive and code_only_reads(code)


def code_only_reads(code: ShellCode) -> bool:
    """The same for parsed code whose `unknown` the caller has looked at."""
    return all(map(reads, code.commands)) and not any(
        redirect.write and not is_sink(redirect.target) for redirect in code.redirects
    )


def is_sink(target: Word) -> bool:
    """Whether writing there changes nothing."""
    return target in ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2")


def exposed(code: ShellCode) -> str:
    """The variable, secret by its name, whose value a command that only reads would print; else ""."""
    found = [*code.secrets, *(name for simple in code.commands if reads(simple) for name in simple.secrets)]
    return found[0] if found else ""


def reads(command: SimpleCommand) -> bool:
    """Whether this one command is known to only read."""
    if command.wrapper:
        return True
    name = (command.argv[0] or "").removeprefix("/usr/bin/").removeprefix("/bin/")
    if name in _ANY_ARGUMENTS or name == "xargs":  # what xargs runs is judged by itself
        return True
    arguments = command.argv[1:]
    if name == "find":
        arguments = _without_executed(arguments)
    if arguments[:2] == ("-C", None) and name == "git" and _no_options(command):
        arguments = arguments[2:]
    if name == "printf":  # a format that is an option would set a variable
        return bool(arguments) and arguments[0] is not None and not arguments[0].startswith("-")
    if None in arguments and (name == "git" or not _no_options(command)):
        return False
    known = [OPERAND if part is None else part for part in arguments]
    if len(known) == 1 and known[0] in _PRINTS_VERSION.get(name, ()):
        return True
    check = _CHECKS.get(name)
    return check is not None and check(known)


def _no_options(command: SimpleCommand) -> bool:
    """Whether the words of this command that only the shell knows cannot be options of it."""
    return (
        not command.unlisted
        and bool(command.choices)
        and all(re.match(r"[\w./~$]", choice) and "{" not in choice for choice in command.choices)
    )


def _without_executed(arguments: tuple[Word, ...]) -> tuple[Word, ...]:
    """The arguments of find without the commands in it, which are judged by themselves."""
    kept: list[Word] = []
    inside = False
    for index, part in enumerate(arguments):
        if inside:
            inside = not (part == ";" or (part == "+" and arguments[index - 1] == "{}"))
        elif part == "-exec":
            inside = True
        else:
            kept.append(part)
    return tuple(kept)


def _only(pattern: str, most: int = 1_000) -> Callable[[list[str]], bool]:
    """A check: each option matches, and there are at most so many operands (values of options count)."""
    options = re.compile(pattern)

    def check(arguments: list[str]) -> bool:
        operands = [part for part in arguments if not part.startswith("-") or part == "-"]
        return len(operands) <= most and all(
            options.fullmatch(part) for part in arguments if part.startswith("-") and part != "-"
        )

    return check


def _without(*bad: str) -> Callable[[list[str]], bool]:
    return lambda arguments: not any(part.startswith(bad) for part in arguments)


def _rg(arguments: list[str]) -> bool:
    bad = ("--pre", "--hostname", "--search-zip")
    return not any(part.startswith(bad) or re.match(r"-[A-Za-z]*z", part) for part in arguments)


def _date(arguments: list[str]) -> bool:
    shape = re.compile(r"\+.*|-u|-I\w*|-R|--(?:date|iso-8601|rfc-3339)=.*|--utc", re.DOTALL)
    rest = list(arguments)
    while "-d" in rest[:-1]:
        at = rest.index("-d")
        del rest[at : at + 2]
    return all(map(shape.fullmatch, rest))


def _file(arguments: list[str]) -> bool:
    """Without compiling, and without magic files, whose lines it prints in errors."""
    return not any(re.match(r"-[A-Za-z]*[Cm]|--[cm]", part) for part in arguments)


def _ps(arguments: list[str]) -> bool:
    """Without the letter that shows environments."""
    return all(re.fullmatch(r"-[^E]*|(?!-)[^e]*", part) for part in arguments)


def _test(arguments: list[str]) -> bool:
    return not {"-v", "-R"} & set(arguments)


def _xxd(arguments: list[str]) -> bool:
    options, operands = split(arguments, valued="clsgo", plain="abeipruE")
    return options is not None and len(operands) <= 1


def _set(arguments: list[str]) -> bool:
    return bool(arguments) and all(re.fullmatch(r"[-+][eux]*o?|pipefail", part) for part in arguments)


def _read(arguments: list[str]) -> bool:
    names = [part for part in arguments if part != "-r"]
    return bool(names) and all(re.fullmatch(r"[a-z][a-z0-9_]*", part) for part in names)


def _git(arguments: list[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0] in ("--no-pager", "-P", "-C"):
        rest = rest[2:] if rest[0] == "-C" else rest[1:]
    if not rest:
        return False
    name, options = rest[0], rest[1:]
    if any("%G" in part or "%(signature" in part for part in options):
        return False  # it runs the program that checks signatures
    if git_acts(options):
        return False
    if name == "grep":
        return not any(re.match(r"-[a-zA-Z]*O|--no-|--unt", part) for part in options)
    if name in _GIT_READS:
        return True
    if name in ("branch", "tag"):
        return _git_lists(name, options)
    if name == "remote":
        return options in ([], ["-v"], ["show"]) or options[:1] == ["get-url"]
    if name == "reflog":
        return options[:1] == ["show"] or all(part.startswith("-") for part in options)
    if name == "submodule":
        return options in ([], ["status"])
    if name == "config" and any(
        re.search(r"header|token|passw|secret|helper|--(?:re|u|sh)", part, re.I) for part in options
    ):
        return False
    if name == "config" and len(options) == 1 and "." in options[0]:
        return not options[0].startswith("-")
    return bool(options) and options[0] in _GIT_SUBCOMMANDS.get(name, ())


def git_acts(options: list[str]) -> bool:
    """Whether one of these options, or what may be short for one, makes Git write a file or run a program."""
    starts = [part.split("=", 1)[0] for part in options if part.startswith("--") and part != "--"]
    return any(bad.startswith(start) for start in starts for bad in _GIT_ACTS)


def _git_lists(name: str, options: list[str]) -> bool:
    """`branch` and `tag` make one when they are given a name, unless an option asks for a list."""
    if name == "tag" and any(re.match(r"-[a-z]*[arv]", part) for part in options):
        return False
    asked = any(
        part in ("--list", *_GIT_SELECTS[:5])
        or (part == "-l" and name == "tag")  # of `branch` it once meant something else
        or re.match(r"--(?:contains|merged|points-at)=", part)
        for part in options
    )
    return all(
        _GIT_LISTING.fullmatch(part) or part in _GIT_SELECTS or (asked and not part.startswith("-"))
        for part in options
    )


_CHECKS: dict[str, Callable[[list[str]], bool]] = {
    "awk": awk_reads,
    "command": lambda arguments: arguments[:1] in (["-v"], ["-V"]),
    "date": _date,
    "file": _file,
    "find": _without(*_FIND_ACTS),
    "gawk": awk_reads,
    "git": _git,
    "hostname": lambda arguments: not arguments,
    "jq": jq_reads,
    "mawk": awk_reads,
    "ps": _ps,
    "read": _read,
    "rg": _rg,
    "sed": sed_reads,
    "set": _set,
    "sort": _only(
        r"-[bdfghinMRrVuzcs]+|-[kt].*|--(?:reverse|unique|numeric-sort|version-sort|human-numeric-sort"
        r"|ignore-case|stable|check|key=.*|field-separator=.*)"
    ),
    "test": _test,
    "tree": _only(r"-[adfspughDFCnNQ]+|-[LIP]|--(?:noreport|dirsfirst|gitignore|prune|du)"),
    "uniq": _only(r"-[cdiuD]+|--(?:count|repeated|unique|ignore-case)", 1),
    "wait": lambda arguments: not arguments,
    "xxd": _xxd,
}
