"""What identifies a project on this disk: its Git repository and remote, read from Git's own files.

No process is started, and nothing that a repository configures (hooks, fsmonitor, includes, aliases) has a
say. What Git would not accept as a repository counts as none.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_CONFIG_LIMIT = 1_000_000  # bytes
_PORTS = {"http": 80, "https": 443, "ssh": 22, "git+ssh": 22, "ssh+git": 22, "git": 9418}
# Other names of hosts, for networks that block port 22.
_HOSTS = {
    "ssh.github.com": "github.com",
    "www.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}
_FOLDED = frozenset({"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"})
"""Hosts that do not tell the case of a repository's path."""

_SECTION = re.compile(r'\[\s*remote\s+"((?:[^"\\\n]|\\.)*)"\s*\]\s*(.*)\Z', re.IGNORECASE)
_VALUE = re.compile(r"url\s*=\s*(.*)\Z", re.IGNORECASE)
_SCP = re.compile(r"(?:[^/@]*@)?(\[[^\]/]+\]|[^/:\[\]]+):(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A project: `root` is the work tree that was found, `place` the folder that identifies it (the
    same for all worktrees of a repository), `remote` the normalised address, "" without one. All real
    paths."""

    root: Path
    place: Path
    remote: str = ""


def find_project(folder: Path, home: Path | None = None) -> Found | None:
    """The project that `folder` is in; None in the home folder and in the file system's root, which are
    nobody's project. A repository of the whole home folder (dotfiles) is not the project of what is in it."""
    real = Path(os.path.realpath(folder))
    no_project = {
        Path(real.anchor),
        Path(os.path.realpath(home if home is not None else Path("~").expanduser())),
    }
    for root in (real, *real.parents):
        if root in no_project:
            break
        if (git := _git_folder(root)) is not None:
            common = _common(git)
            place = common.parent if common.name == ".git" else common
            return Found(root, place, _remote(common, root))
    return None if real in no_project else Found(real, real)


def normalised_remote(address: str, base: Path) -> str:
    """One spelling for all addresses of a repository; without user, password, default port and `.git`.

    `base` is the repository, for addresses that are paths. "" when there is no address.
    """
    text = address.strip()
    scheme, separator, _ = text.partition("://")
    if separator and scheme.lower() != "file":
        return _from_url(text)
    if not separator and (match := _SCP.match(text)) is not None:
        host, path = match[1], match[2]
        if host.startswith("["):  # `[host:port]:path`, or an IPv6 address
            host, _, port = host[1:-1].rpartition(":") if host.count(":") == 1 else (host, "", "")
            return _joined(host, port if port != "22" else "", path)
        return _joined(host, "", path)
    path = unquote(urlsplit(text).path) if separator else text
    return "file:" + _without_git(os.path.realpath(base / path)) if path else ""


def _from_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # a port or IPv6 address that is none
        return "url:" + re.sub(r"//[^/@]*@", "//", text)
    shown = "" if port is None or port == _PORTS.get(parts.scheme.lower()) else str(port)
    query = f"?{parts.query}" if parts.query else ""
    host = f"[{host}]" if ":" in host else host
    return _joined(host, shown, unquote(parts.path) + query)


def _joined(host: str, port: str, path: str) -> str:
    name = host.lower().rstrip(".")
    known = _HOSTS.get(name)
    name, port = (known, "") if known is not None else (name, port)
    path = _without_git(re.sub(r"/{2,}", "/", path).strip("/"))
    return f"{name}{':' + port if port else ''}/{path.lower() if name in _FOLDED else path}"


def _without_git(path: str) -> str:
    stem = path.rstrip("/")
    return stem[:-4].rstrip("/") if stem.lower().endswith(".git") and len(stem) > 4 else stem


def _git_folder(root: Path) -> Path | None:
    """The Git directory of the work tree `root`, when there is one that Git could open."""
    git = root / ".git"
    try:
        if git.is_file():
            with git.open("rb") as file:
                words = os.fsdecode(file.read(65_536)).rstrip("\r\n")
            if not words.startswith("gitdir: "):
                return None
            git = Path(os.path.realpath(root / words.removeprefix("gitdir: ")))
        else:
            git = Path(os.path.realpath(git))
        if not os.path.lexists(git / "HEAD") or not (_common(git) / "objects").is_dir():
            return None
    except (OSError, ValueError):
        return None
    return git


def _common(git: Path) -> Path:
    """The Git directory that all worktrees of a repository share."""
    try:
        with (git / "commondir").open("rb") as file:
            words = os.fsdecode(file.read(65_536)).rstrip("\r\n")
        return Path(os.path.realpath(git / words))
    except (OSError, ValueError):
        return git


def _remote(common: Path, root: Path) -> str:
    """The address of `origin`, else of the only remote; "" without one."""
    try:
        with (common / "config").open("rb") as file:
            text = os.fsdecode(file.read(_CONFIG_LIMIT))
    except OSError:
        return ""
    addresses = _addresses(text)
    address = addresses.get("origin") or (next(iter(addresses.values())) if len(addresses) == 1 else "")
    try:
        return normalised_remote(address, root)
    except (OSError, ValueError):  # a path with NUL, say
        return ""


def _addresses(config: str) -> dict[str, str]:
    """The first address of each remote, by name."""
    found: dict[str, str] = {}
    remote: str | None = None
    for line in config.removeprefix("\ufeff").replace("\\\n", "").splitlines():
        words = line.strip()
        if words.startswith("["):
            match = _SECTION.match(words)
            remote = re.sub(r"\\(.)", r"\1", match[1]) if match is not None else None
            words = match[2] if match is not None else ""
        if remote is not None and (value := _VALUE.match(words)) is not None:
            found.setdefault(remote, _plain(value[1]))
    return {name: address for name, address in found.items() if address}


def _plain(value: str) -> str:
    """A configuration value without quotes, escapes and comment."""
    plain, quoted, at = "", False, 0
    while at < len(value):
        char = value[at]
        if char == "\\" and at + 1 < len(value):
            at += 1
            plain += value[at]
        elif char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            break
        else:
            plain += char
        at += 1
    return plain.strip()
