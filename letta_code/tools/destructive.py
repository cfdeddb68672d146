"""Shell commands that destroy what cannot be brought back: asked about in every mode.

Only finds what is plainly so; everything else is judged by mode and rules.
"""

from __future__ import annotations

import re

from letta_code.tools.rules import normalised
from letta_code.tools.shell_reading import is_sink
from letta_code.tools.shell_syntax import ShellCode
from letta_code.tools.shell_words import Word
from letta_code.tools.shell_wrappers import base_name

_ALWAYS = frozenset(
    {"fdisk", "halt", "parted", "poweroff", "reboot", "sfdisk", "shred", "shutdown", "wipefs"}
)
_FETCHERS = frozenset({"curl", "wget", "fetch"})
_RUNNERS = frozenset(
    {
        "sh",
        "bash",
        "dash",
        "zsh",
        "ksh",
        "fish",
        "eval",
        "source",
        ".",
        "python",
        "python3",
        "perl",
        "ruby",
        "node",
    }
)
_UNPARSED = re.compile(
    r"\brm\s+-\w*(?:r\w*f|f\w*r)|\bgit\b.*\b(?:reset\b.*--hard|clean\b.*-\w*f|push\b.*(?:--force|-f\b))"
    r"|\bmkfs|\bdd\b.*\bof=|\bshred\b|\bwipefs\b|\(\)\s*\{.*\|.*&|(?:curl|wget)\b.*\|.*\b(?:ba|z|da|k)?sh\b",
    re.DOTALL | re.IGNORECASE,
)


def destruction(command: str, code: ShellCode) -> str:
    """What `command` would destroy, in a few words; empty when nothing of the kind is found."""
    if code.recursive:
        return "it starts itself without end (a fork bomb)"
    for simple in code.commands:
        if reason := _destroys(normalised(simple.argv)):
            return reason
    names = {base_name(simple.argv[0] or "") for simple in code.commands}
    if names & _FETCHERS and (names & _RUNNERS):
        return "it runs code straight from the network"
    for redirect in code.redirects:
        target = redirect.target or ""
        if redirect.write and target.startswith("/dev/") and not is_sink(target) and target != "/dev/tty":
            return f"it overwrites the device {target}"
    if code.unknown and _UNPARSED.search(command):
        return "it seems to delete or overwrite, and cannot be checked"
    return ""


def _destroys(argv: tuple[Word, ...]) -> str:
    name, rest = argv[0] or "", [part for part in argv[1:] if part is not None]
    if name in _ALWAYS or name.startswith("mkfs"):
        return f"`{name}` cannot be undone"
    if name == "dd" and any(part.startswith("of=") and not is_sink(part[3:]) for part in rest):
        return "`dd` overwrites its target"
    if name == "rm":
        recursive = _has(rest, "rR", "--recursive")
        if recursive and _has(rest, "f", "--force"):
            return "`rm -rf` deletes for good"
    if name == "find" and "-delete" in rest:
        return "`find -delete` deletes for good"
    if name == "git" and rest:
        return _git_destroys(rest[0], rest[1:])
    return ""


def _git_destroys(name: str, rest: list[str]) -> str:
    lost = f"`git {name}` here throws work away"
    if name == "reset" and _long(rest, "--hard"):
        return lost
    if name == "clean" and _has(rest, "f", "--force") and not _has(rest, "n", "--dry-run"):
        return lost
    if name == "checkout" and ("--" in rest or "." in rest or _has(rest, "f", "--force")):
        return lost
    if name == "restore" and not (_has(rest, "S", "--staged") and not _has(rest, "W", "--worktree")):
        return lost
    if name == "switch" and (_has(rest, "f", "--force") or _long(rest, "--discard-changes")):
        return lost
    if name == "stash" and rest[:1] and rest[0] in ("drop", "clear"):
        return lost
    if name == "branch" and (
        _has(rest, "D", "") or (_has(rest, "d", "--delete") and _has(rest, "f", "--force"))
    ):
        return lost
    if name == "worktree" and rest[:1] == ["remove"] and _has(rest[1:], "f", "--force"):
        return lost
    if name in ("filter-branch", "filter-repo") or (
        name == "reflog" and rest[:1] in (["expire"], ["delete"])
    ):
        return "it rewrites history for good"
    if name == "push" and (
        _has(rest, "fd", "--force", "--force-with-lease", "--delete", "--mirror", "--prune")
        or any(part.startswith(("+", ":")) for part in rest)
    ):
        return "it overwrites or deletes what others have pushed"
    return ""


def _has(rest: list[str], letters: str, *names: str) -> bool:
    """Whether an option is there: one of the letters, alone or in a bundle, or a name or its start."""
    if any(re.match(rf"-[a-zA-Z]*[{letters}]", part) for part in rest):
        return True
    return any(_long(rest, name) for name in names if name)


def _long(rest: list[str], name: str) -> bool:
    return any(len(part) > 3 and name.startswith(part.split("=", 1)[0]) and part[:2] == "--" for part in rest)
