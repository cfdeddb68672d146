"""Commands that run other commands: how to find what `env`, `xargs`, `find -exec` and the like would run."""

from __future__ import annotations

import re
from collections.abc import Callable

from letta_code.tools.shell_code.words import Word

HARMLESS_FOR_A_COMMAND = frozenset({"LC_ALL", "LANG", "LANGUAGE", "TZ", "NO_COLOR", "LC_COLLATE", "LC_CTYPE"})
"""Variables that may be set for one command."""


def base_name(name: str) -> str:
    """The program's name without its folder."""
    return name.rsplit("/", 1)[-1]


def normalised(argv: tuple[Word, ...]) -> tuple[Word, ...]:
    """`argv` with the program's bare name and without Git's options before the subcommand, so that
    `/usr/bin/git -C x push` is `git push`."""
    name = base_name(argv[0] or "")
    rest = list(argv[1:])
    if name == "git":
        while rest and rest[0] is not None and rest[0].startswith("-"):
            takes_value = rest[0] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
            rest = rest[2:] if takes_value else rest[1:]
    return (name, *rest)


Found = list[tuple[Word, ...]] | None
"""The commands that a wrapper runs; None when that is not understood."""


def _after_options(argv: tuple[Word, ...], valued: str = "", plain: str = "") -> tuple[Word, ...] | None:
    """The words after the options. `valued` are letters of options that take a value, `plain` of those
    that do not; anything else is not understood."""
    index = 1
    while index < len(argv):
        part = argv[index]
        if part is None:
            return None
        if part == "--":
            return argv[index + 1 :]
        if not part.startswith("-") or part == "-":
            return argv[index:]
        if len(part) == 2 and part[1] in valued:
            index += 2
        elif (len(part) > 2 and part[1] in valued) or (set(part[1:]) <= set(plain)):
            index += 1
        else:
            return None
    return ()


def _simple(valued: str = "", plain: str = "", skip: int = 0) -> Callable[[tuple[Word, ...]], Found]:
    def unwrap(argv: tuple[Word, ...]) -> Found:
        rest = _after_options(argv, valued, plain)
        return None if rest is None or None in rest[:skip] else [rest[skip:]]

    return unwrap


def _env(argv: tuple[Word, ...]) -> Found:
    rest = _after_options(argv, "u", "i0")
    while rest and rest[0] is not None and "=" in rest[0]:
        rest = rest[1:]
    return [rest] if rest else None


def set_by_env(argv: tuple[Word, ...]) -> list[str]:
    """The variables that `env` or `sudo` sets for what it runs."""
    if base_name(argv[0] or "") not in ("env", "sudo", "doas"):
        return []
    return [part.split("=", 1)[0] for part in argv[1:] if part and re.match(r"[A-Za-z_]\w*=", part)]


def _sudo(argv: tuple[Word, ...]) -> Found:
    rest = _after_options(argv, "ugpC", "nEHkSb")
    while rest and rest[0] is not None and re.match(r"[A-Za-z_]\w*=", rest[0]):
        rest = rest[1:]
    return None if rest is None else [rest]


def _xargs(argv: tuple[Word, ...]) -> Found:
    rest = _after_options(argv, "nPLIsd", "0rtx")
    if rest is None:
        return None
    options = [part or "" for part in argv[1 : len(argv) - len(rest)]]
    behind = [*options[1:], ""] if options else []
    marks = [part[2:] or value for part, value in zip(options, behind, strict=True) if part.startswith("-I")]
    if marks:  # what is read replaces the mark wherever it stands
        rest = tuple(None if part and any(mark in part for mark in marks) else part for part in rest)
    return [(*(rest or ("echo",)), None)]


def _command(argv: tuple[Word, ...]) -> Found:
    if argv[1:2] in (("-v",), ("-V",)):
        return []
    return _simple(plain="p")(argv)


def _find(argv: tuple[Word, ...]) -> Found:
    found: list[tuple[Word, ...]] = []
    index = 1
    while index < len(argv):
        if argv[index] in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next(
                (
                    at
                    for at in range(index + 1, len(argv))
                    if argv[at] == ";" or (argv[at] == "+" and argv[at - 1] == "{}")
                ),
                len(argv),
            )
            found.append(tuple(None if part and "{}" in part else part for part in argv[index + 1 : end]))
            index = end
        index += 1
    return found or None


WRAPPERS: dict[str, Callable[[tuple[Word, ...]], Found]] = {
    "command": _command,
    "builtin": _simple(),
    "exec": _simple(),
    "nohup": _simple(),
    "time": _simple(plain="p"),
    "coproc": _simple(),
    "setsid": _simple(plain="cfw"),
    "stdbuf": _simple("ioe"),
    "nice": _simple("n"),
    "ionice": _simple("cn", "t"),
    "timeout": _simple("ks", "v", skip=1),
    "sudo": _sudo,
    "doas": _simple("u", "n"),
    "env": _env,
    "xargs": _xargs,
    "find": _find,
}
