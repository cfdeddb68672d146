"""Which shell commands are known to only read, by name and by their arguments.

A list of what is harmless, never of what is harmful: what is not on it is not known.
"""

from __future__ import annotations

import re

from letta_code.tools.shell_syntax import ShellCode, SimpleCommand, parse
from letta_code.tools.shell_words import Word

_ANY_ARGUMENTS = frozenset(
    {
        *(
            ":",
            "[",
            "basename",
            "cat",
            "cd",
            "cksum",
            "cmp",
            "column",
            "comm",
            "cut",
            "df",
            "diff",
            "dirname",
        ),
        *(
            "du",
            "echo",
            "egrep",
            "expr",
            "false",
            "fgrep",
            "fold",
            "free",
            "grep",
            "head",
            "id",
            "join",
        ),
        *(
            "ls",
            "md5sum",
            "nl",
            "nproc",
            "od",
            "paste",
            "pwd",
            "readlink",
            "realpath",
            "rev",
        ),
        *(
            "seq",
            "sha1sum",
            "sha256sum",
            "sha512sum",
            "sleep",
            "stat",
            "strings",
            "tac",
            "tail",
            "test",
            "tr",
        ),
        *("true", "type", "uname", "uptime", "wc", "which", "whoami"),
    }
)
_VERSIONED = frozenset(
    {"python", "python3", "node", "npm", "pip", "go", "cargo", "rustc", "java", "ruby", "gcc"}
)
_FIND_ACTS = ("-delete", "-fprint", "-fls", "-execdir", "-ok")
_FIND_RUNS = ("-exec",)
_GIT_READS = frozenset(
    {
        *(
            "blame",
            "cat-file",
            "count-objects",
            "describe",
            "diff",
            "for-each-ref",
            "grep",
            "log",
            "ls-files",
        ),
        *(
            "ls-tree",
            "merge-base",
            "name-rev",
            "rev-list",
            "rev-parse",
            "shortlog",
            "show",
            "status",
            "version",
        ),
    }
)
_GIT_WRITES = (
    "--output",
    "--ext-diff",
    "--open-files-in-pager",
    "--filters",
    "--textconv",
    "--exec",
    "--upload-pack",
)
_GIT_BRANCH = re.compile(r"-[arv]+|-vv|--(list|all|remotes|verbose|show-current|no-color|sort=.*)")
_GIT_LISTS = {
    "stash": ("list", "show"),
    "worktree": ("list",),
    "remote": ("-v", "get-url"),
    "config": ("--get", "--list", "-l", "get", "list", "--get-all"),
    "reflog": ("show",),
}


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


def reads(command: SimpleCommand) -> bool:
    """Whether this one command is known to only read."""
    if command.wrapper:
        return True
    name = (command.argv[0] or "").removeprefix("/usr/bin/").removeprefix("/bin/")
    arguments = command.argv[1:]
    if name in ("test", "[") and any(part is None or part in ("-v", "-R") for part in arguments):
        return "-v" not in arguments and "-R" not in arguments and None not in arguments[:1]
    if name in _ANY_ARGUMENTS:
        return True
    if name == "xargs":
        return True  # what it runs is judged by itself
    if name == "jq":  # its programs can print the environment, keys of models included
        return not any(
            part and re.search(r"\benv\b|\$ENV|\b(?:import|include)\b", part) for part in arguments
        )
    if name == "ps":
        return all(part and (part.startswith("-") or "e" not in part) for part in arguments)
    if name == "find":
        arguments = _without_executed(arguments)
    known = [part for part in arguments if part is not None]
    if len(known) != len(arguments):
        return False
    if name in _VERSIONED:
        return known in (["--version"], ["-V"], ["version"], ["-version"])
    check = _CHECKS.get(name)
    return check is not None and check(known)


def _printf(arguments: list[str]) -> bool:
    return bool(arguments) and not arguments[0].startswith("-")


def _without_executed(arguments: tuple[Word, ...]) -> tuple[Word, ...]:
    """The arguments of find without the commands in it, which are judged by themselves."""
    kept: list[Word] = []
    inside = False
    for part in arguments:
        if inside:
            inside = part not in (";", "+")
        elif part in _FIND_RUNS:
            inside = True
        else:
            kept.append(part)
    return tuple(kept)


def _find(arguments: list[str]) -> bool:
    return not any(part.startswith(_FIND_ACTS) for part in arguments)


def _rg(arguments: list[str]) -> bool:
    return not any(part.startswith(("--pre", "--hostname", "--search-zip", "-z")) for part in arguments)


def _sort(arguments: list[str]) -> bool:
    return all(
        not part.startswith("-") or re.fullmatch(r"-[bdfghinMRrVuzc]+|-[kt].*", part) for part in arguments
    )


def _uniq(arguments: list[str]) -> bool:
    return all(re.fullmatch(r"-[cdiu]+", part) for part in arguments)


def _date(arguments: list[str]) -> bool:
    return all(re.fullmatch(r"\+.*|-u|-I\w*|-R", part, re.DOTALL) for part in arguments)


def _file(arguments: list[str]) -> bool:
    return not any(
        (part.startswith(("-C", "--co", "-b")) and "C" in part) or part == "--compile" for part in arguments
    )


def _tree(arguments: list[str]) -> bool:
    return all(not part.startswith("-") or re.fullmatch(r"-[adfspugh]+|-[LI]", part) for part in arguments)


def _bare(arguments: list[str]) -> bool:
    return not arguments


def _git(arguments: list[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0] in ("--no-pager", "-P", "-C"):
        rest = rest[2:] if rest[0] == "-C" else rest[1:]
    if not rest:
        return False
    if rest == ["--version"]:
        return True
    name, options = rest[0], rest[1:]
    for part in options:
        start = part.split("=", 1)[0]
        if len(start) > 2 and start.startswith("--") and any(bad.startswith(start) for bad in _GIT_WRITES):
            return False
    if name == "grep":
        return not any(re.match(r"-[a-zA-Z]*O", part) for part in options)
    if name in _GIT_READS:
        return True
    if name == "branch":
        return all(_GIT_BRANCH.fullmatch(part) for part in options)
    if name == "tag":
        return not options or (
            options[0] in ("-l", "--list") and not any(p in ("-d", "-f", "-a") for p in options)
        )
    if name in _GIT_LISTS:
        if not options:
            return name in ("remote", "reflog")
        return options[0] in _GIT_LISTS[name]
    return False


_CHECKS = {
    "printf": _printf,
    "find": _find,
    "rg": _rg,
    "sort": _sort,
    "uniq": _uniq,
    "date": _date,
    "file": _file,
    "tree": _tree,
    "hostname": _bare,
    "git": _git,
}
