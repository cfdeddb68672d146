"""Shell commands that destroy what cannot be brought back: asked about in every mode.

Only finds what is plainly so, however it is spelled or wrapped; everything else is judged by mode and rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from letta_code.tools.shell_code.reading import is_sink, reads
from letta_code.tools.shell_code.syntax import ShellCode, SimpleCommand, parse
from letta_code.tools.shell_code.words import Word
from letta_code.tools.shell_code.wrappers import base_name, normalised

_ALWAYS = re.compile(
    r"mkfs.*|mke2fs|mkswap|fdisk|sfdisk|parted|wipefs|shred|halt|poweroff|reboot|shutdown|killall|pkill"
    r"|userdel|groupdel|dropdb"
)
_WORDS_THAT_DESTROY = {  # by program: what its words, joined by blanks, must not contain
    "docker|podman": r"\b(?:(?:system|volume|image|container|builder|network) prune|system reset"
    r"|volume rm|rm( \S+)* (-f|--force|-\w*f)|down( \S+)* (-v|--volumes))\b",
    "kubectl|oc": r"\b(?:delete|drain)\b",
    "terraform|tofu|pulumi": r"\bdestroy\b",
    "helm": r"\b(?:uninstall|delete)\b",
    "systemctl|service|launchctl": r"\b(?:stop|disable|mask|kill|isolate|halt|poweroff|reboot|unload)\b",
    "crontab": r"(?:\A| )-r",
    "gh": r"\b(?:repo|release|secret|gist) delete\b",
    "aws": r"\b(?:rm|rb|delete-\S+|terminate-\S+)\b",
    "gsutil": r"\brm\b",
    "redis-cli": r"(?i)\bflush(?:all|db)\b",
    "psql|mysql|mariadb|sqlite3|duckdb|mongosh": r"(?i)\b(?:drop\s+(?:database|schema|table|collection)"
    r"|truncate|delete\s+from)\b|dropDatabase",
    r"python[\d.]*|node|deno|bun|perl|ruby|php": r"rmtree|rmSync|rm_rf|rmdir\(|unlink|os\.remove|remove_tree",
    "rsync": r"(?:\A| )--(?:del|remove-source)",
    "chmod|chown|chgrp": r"(?:\A| )(?:-[a-zA-Z]*R|--rec)",
    "truncate": r"(?:\A| )(?:-s|--si)",
    "tee|cp|mv|install|cat": r"(?:\A| )/dev/(?:sd|hd|vd|nvme|mmcblk|disk|mapper|md|loop)",
    "mv": r" /dev/null\Z",
    "kill": r"(?:\A| )(?:-- )?-1\Z",
}
_BY_PROGRAM = tuple((re.compile(names), re.compile(what)) for names, what in _WORDS_THAT_DESTROY.items())
_RUN_OTHERS = re.compile(
    r"busybox|toybox|watch|parallel|flock|setsid|unshare|chroot|nsenter|ssh|su|runuser|script|strace|ltrace"
    r"|chrt|taskset|docker|podman|kubectl|systemd-run|tmux|screen|proot|firejail|at|batch|env|sudo|doas"
    r"|xargs|find|bwrap|npx|uv|poetry|pipenv|direnv"
)
"""Programs that run what stands in their words, in a way that `wrappers` does not know."""

_FETCHERS = re.compile(r"curl|wget|fetch|aria2c")
_SHELLS = re.compile(r"(?:ba|da|z|k|c|tc|fi)?sh|eval|source|\.")
_INTERPRETERS = re.compile(r"python[\d.]*|perl|ruby|node|php|lua")
_UNPARSED = re.compile(
    r"\brm\s+(?:\S+\s+)*?-\w*r|\brm\s+--rec|\bgit\b.*\b(?:reset\b.*--(?:hard|merge)|clean\b|checkout\b.*(?:--|\s\.|-f)"
    r"|restore\b|stash\s+(?:drop|clear)|branch\b.*-D|push\b.*(?:--force|--mirror|--delete|-\w*f\b|\s\+))"
    r"|\bmkfs|\bdd\b.*\bof=|\bshred\b|\bwipefs\b|\(\)\s*\{.*\|.*&|\bfind\b.*\s-delete\b"
    r"|(?:curl|wget)\b.*\|.*\b(?:ba|z|da|k)?sh\b",
    re.DOTALL | re.IGNORECASE,
)


def destruction(command: str, code: ShellCode, depth: int = 0) -> str:
    """What `command` would destroy, in a few words; empty when nothing of the kind is found."""
    if code.recursive:
        return "it starts itself without end (a fork bomb)"
    handed = any(base_name(simple.argv[0] or "") in ("find", "xargs") for simple in code.commands)
    for simple in (*code.commands, *code.perhaps):
        for reason in _reasons(simple, handed, depth):
            return reason
    if _runs_what_it_fetches(code):
        return "it runs code straight from the network"
    for redirect in code.redirects:
        target = redirect.target or ""
        if redirect.write and target.startswith("/dev/") and not is_sink(target) and target != "/dev/tty":
            return f"it overwrites the device {target}"
    spelled = re.sub(r"\$\{?IFS\}?|[{},]", " ", re.sub(r"\$[@*]|\$\{[@*]\}|['\"]|\\\n|\\", "", command))
    if (code.unknown or _feeds_a_shell(code)) and (_UNPARSED.search(command) or _UNPARSED.search(spelled)):
        return "it seems to delete or overwrite, and cannot be checked"
    return ""


def _reasons(simple: SimpleCommand, handed: bool, depth: int) -> Iterator[str]:
    argv = normalised(simple.argv)
    listable = not (handed or simple.unlisted or not simple.choices)
    if listable and not any(re.search(r"[*?\[]", choice) for choice in simple.choices):
        argv = (*(part for part in argv if part is not None), *simple.choices)
    if reason := _destroys(argv):
        yield reason
    name = argv[0] or ""
    if reads(simple) and not simple.wrapper and name not in ("find", "xargs"):
        return
    if _RUN_OTHERS.fullmatch(name):
        for at in range(1, min(len(argv), 50)):
            if argv[at] and (reason := _destroys(normalised(argv[at:]))):
                yield reason
        for part in argv[1:]:
            if part and " " in part and depth < 3 and (reason := destruction(part, parse(part), depth + 1)):
                yield reason


def _destroys(argv: tuple[Word, ...]) -> str:
    name, rest = argv[0] or "", [part for part in argv[1:] if part is not None]
    if _ALWAYS.fullmatch(name):
        return f"`{name}` cannot be undone"
    if name == "dd" and any(part.startswith("of=") and not is_sink(part[3:]) for part in rest):
        return "`dd` overwrites its target"
    if name == "rm":
        if _has(rest, "rR", "--recursive"):
            return "`rm -r` deletes for good"
        if None in argv:
            return "`rm` here deletes files that are only known when it runs"
    if name == "find" and "-delete" in rest:
        return "`find -delete` deletes for good"
    if name == "git" and rest:
        return _git_destroys(rest[0], rest[1:])
    words = " ".join(rest)
    for names, what in _BY_PROGRAM:
        if names.fullmatch(name) and what.search(words):
            return f"`{name}` here destroys, stops or overwrites for good"
    return ""


def _git_destroys(name: str, rest: list[str]) -> str:
    forced = _has(rest, "f", "--force")
    files = {
        "reset": _long(rest, "--hard") or _long(rest, "--merge"),
        "clean": not _has(rest, "n", "--dry-run"),
        "checkout": "--" in rest or "." in rest or forced,
        "restore": not (_has(rest, "S", "--staged") and not _has(rest, "W", "--worktree")),
        "switch": forced or _long(rest, "--discard-changes"),
        "stash": rest[:1] in (["drop"], ["clear"]),
        "branch": _has(rest, "D") or (_has(rest, "d", "--delete") and forced),
        "worktree": rest[:1] == ["remove"] and forced,
        "submodule": rest[:1] == ["deinit"] and forced,
        "rm": (forced or _has(rest, "r")) and not _long(rest, "--cached"),
        "lfs": rest[:1] == ["prune"],
    }
    if files.get(name):
        return f"`git {name}` here throws work away"
    if (
        name in ("filter-branch", "filter-repo", "prune")
        or (name == "reflog" and rest[:1] in (["expire"], ["delete"]))
        or (name == "update-ref" and _has(rest, "d"))
        or (name == "gc" and _long(rest, "--prune"))
    ):
        return "it rewrites history for good"
    if name == "push" and (
        _has(rest, "fd", "--force", "--force-with-lease", "--delete", "--mirror", "--prune")
        or any(part.startswith(("+", ":")) for part in rest)
    ):
        return "it overwrites or deletes what others have pushed"
    return ""


def _runs_what_it_fetches(code: ShellCode) -> bool:
    names = [base_name(simple.argv[0] or "") for simple in code.commands]
    if not any(map(_FETCHERS.fullmatch, names)):
        return False
    return any(
        (_SHELLS.fullmatch(name) and not simple.wrapper)
        or (
            _INTERPRETERS.fullmatch(name) and not any(re.match(r"-[cempn]", p or "") for p in simple.argv[1:])
        )
        or (name in ("env", "sudo") and any(part and _SHELLS.fullmatch(part) for part in simple.argv[1:]))
        for name, simple in zip(names, code.commands, strict=True)
    )


def _feeds_a_shell(code: ShellCode) -> bool:
    """Whether a shell reads its commands from what it is given."""
    return any(
        _SHELLS.fullmatch(base_name(simple.argv[0] or "")) and not simple.wrapper for simple in code.commands
    )


def _has(rest: list[str], letters: str, *names: str) -> bool:
    """Whether an option is there: one of the letters, alone or in a bundle, or a name or its start."""
    options = rest[: rest.index("--")] if "--" in rest else rest
    if any(re.match(rf"-[a-zA-Z]*[{letters}]", part) for part in options):
        return True
    return any(_long(options, name) for name in names)


def _long(rest: list[str], name: str) -> bool:
    return any(len(part) > 3 and name.startswith(part.split("=", 1)[0]) and part[:2] == "--" for part in rest)
