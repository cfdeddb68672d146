"""Talking to a remote: the installed `git`, so that a person's ssh keys, credential helpers and proxies work.

Only fetch, push and listing happen here, and only when a person or the sync setting asks for them. What
to do with the commits is for `git.sync`. Nothing that git says leaves here with credentials in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from letta_code.errors import MemoryRemoteError, UsageError

REMOTE = "origin"
FETCHED = "refs/letta/fetched"
"""Where `Transport.fetch` puts the remote's commit: ours alone, so that no other git's lock is in the way."""

SECONDS = 120.0
"""How long one sync may take in all."""

_SCHEMES = ("file", "git", "ssh", "https")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
_OPTION = re.compile(r"-|[A-Za-z0-9+.-]+://(?:[^/]*@)?-")
_SCP = re.compile(r"(?:[^\s@:/]+@)?(?:[A-Za-z0-9_.][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\]):")
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/\s'\"]*)@")
_QUERY = re.compile(r"(?P<url>[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"?]*)\?[^\s'\"]*")
_TOKEN = re.compile(r"gh[a-z]_|github_pat_|glpat-|[A-Za-z0-9_-]{20,}\Z")
# Git's own variables that say how to reach a remote, and nothing about which repository is meant.
_KEPT = frozenset(
    {
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_PROXY_COMMAND",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_CERT",
        "GIT_SSL_KEY",
        "GIT_SSL_NO_VERIFY",
    }
)
_PACKS = 50
"""More packs than that are made one, as `git gc` does: a fetch brings one, and each costs every look-up."""

_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=3"
_QUIET = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.recurseSubmodules=no",
    "fetch.writeCommitGraph=false",
    # A pack appears as a whole; objects one by one would be half a commit when git is killed.
    "fetch.unpackLimit=1",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "push.followTags=false",
    # So that a git whose parent was killed does not wait for ever.
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
)
_RACES = ("fetch first", "non-fast-forward", "stale info", "cannot lock ref", "failed to update ref")
_LATER = (
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Connection refused",
    "Failed to connect",
    "Couldn't connect",
    "Connection reset",
    "Connection timed out",
    "Operation timed out",
    "Network is unreachable",
    "No route to host",
    "unable to connect",
    "early EOF",
    "The requested URL returned error: 5",
)
_LOGIN = (
    "could not read Username",
    "could not read Password",
    "Authentication failed",
    "Permission denied",
)
_NOISE = re.compile(
    r"(?i)warning:|hint:|please make sure you have|and the repository exists"
    r"|fatal: could not read from remote repository"
)
_TERM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RemoteHeads:
    """The branches of a remote (name to commit), and the one its HEAD names ("" when none)."""

    branches: Mapping[str, str]
    default: str


def checked_url(given: str, folder: Path, allow_secret: bool = False) -> str:
    """`given` as it may be stored; a path becomes absolute (relative ones start at `folder`).

    Raises:
        UsageError: it is no address that memory can be synced with, or it holds a password.
    """
    if not given.strip() or not given.isprintable() or given != given.strip():
        raise UsageError(f"{given!r} is not the address of a Git repository", _KINDS)
    if _OPTION.match(given) or _HELPER.match(given):
        raise UsageError(f"{mask(given)}: such an address is not allowed", _KINDS)
    scheme = _SCHEME.match(given)
    if scheme is None:
        if _SCP.match(given):
            return given
        return str((folder / Path(given).expanduser()).resolve())
    if scheme[1].lower() not in _SCHEMES:
        raise UsageError(f"{mask(given)}: {scheme[1]}:// is not supported", _KINDS)
    if holds_secret(given) and not allow_secret:
        raise UsageError(
            f"{mask(given)}: there is a password in the address; it would lie in a file in plain text",
            "leave it out and use a credential helper (git help credentials) or an ssh key; "
            "--allow-secret stores it all the same",
        )
    return given


_KINDS = "one of /a/path, file:///a/path, git://host/path, ssh://host/path, host:path, https://host/path"


def holds_secret(url: str) -> bool:
    """Whether a password or token is part of the address."""
    match = _USERINFO.match(url)
    if match is None:
        return False
    user, colon, password = match["user"].partition(":")
    return bool(colon and password) or (not url.startswith("ssh:") and _TOKEN.match(user) is not None)


def mask(text: str, url: str = "") -> str:
    """`text` without user names, passwords and queries of the addresses in it. The password of `url` is
    masked wherever it stands."""
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = _QUERY.sub(r"\g<url>?***", text)
    return _USERINFO.sub(_masked, text)


def _masked(match: re.Match[str]) -> str:
    plain = match["scheme"].lower() in ("ssh://", "git+ssh://") and ":" not in match["user"]
    return match[0] if plain else f"{match['scheme']}***@"


def _secrets(url: str) -> set[str]:
    match = _USERINFO.match(url)
    if match is None:
        return set()
    user, _, password = match["user"].partition(":")
    found = {password, unquote(password)}
    if holds_secret(f"{match['scheme']}{user}@"):
        found |= {user, unquote(user)}
    return {secret for secret in found if len(secret) > 2}


class Transport:
    """One remote during one sync. `seconds` are for all calls together.

    Every method raises `MemoryRemoteError` when git is missing, fails or takes too long; `retryable` says
    whether it may work later. Its text is git's own, masked."""

    def __init__(
        self, git_dir: Path, url: str, environment: Mapping[str, str], seconds: float = SECONDS
    ) -> None:
        self.url = url
        self._git_dir = git_dir
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self._environment = _clean(environment)
        self._options = [f"--git-dir={git_dir}", *(word for one in _QUIET for word in ("-c", one))]
        scheme = _SCHEME.match(url)
        kind = scheme[1].lower() if scheme else ("ssh" if _SCP.match(url) else "file")
        if kind in ("file", "git"):
            self._options += ["-c", "credential.helper="]
        if kind == "ssh" and not self._own_ssh():
            self._environment["GIT_SSH_COMMAND"] = _SSH

    def heads(self) -> RemoteHeads:
        """What the remote has now."""
        output = self._checked("ls-remote", "--symref", REMOTE, "HEAD", "refs/heads/*")
        branches, default = {}, ""
        for line in output.splitlines():
            value, _, name = line.partition("\t")
            if name == "HEAD" and value.startswith("ref: refs/heads/"):
                default = value.removeprefix("ref: refs/heads/")
            elif name.startswith("refs/heads/") and re.fullmatch(r"[0-9a-f]{40}", value):
                branches[name.removeprefix("refs/heads/")] = value
        return RemoteHeads(branches, default)

    def fetch(self, branch: str) -> None:
        """Bring the commits of `branch` here; `FETCHED` names its tip then."""
        self._checked(
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--refmap=",
            "--",
            REMOTE,
            f"+refs/heads/{branch}:{FETCHED}",
        )
        if sum(1 for _ in (self._git_dir / "objects/pack").glob("*.pack")) > _PACKS:
            # Nothing is dropped, also not what no ref names yet.
            self._checked("repack", "-a", "-d", "--keep-unreachable", "--quiet")

    def push(self, revision: str, branch: str) -> bool:
        """Send `revision` as the new tip of `branch`; False when others pushed meanwhile."""
        words = ("push", "--porcelain", "--no-verify", "--", REMOTE, f"{revision}:refs/heads/{branch}")
        code, output, errors = self._run(*words)
        rows = [line.split("\t") for line in output.splitlines() if line.count("\t") >= 2]
        refused = [row[2] for row in rows if row[0] == "!"]
        if refused:
            if any(race in refused[0] for race in _RACES):
                return False
            raise self._refused_push(refused[0], errors)
        if not rows:
            raise self._failed("push", code, errors)
        return True

    # Running git ----------------------------------------------------------------------------------

    def _own_ssh(self) -> bool:
        if {"GIT_SSH", "GIT_SSH_COMMAND"} & self._environment.keys():
            return True
        return self._run("config", "--get", "core.sshCommand")[0] == 0

    def _checked(self, *words: str) -> str:
        code, output, errors = self._run(*words)
        if code != 0:
            raise self._failed(words[0], code, errors)
        return output

    def _run(self, *words: str) -> tuple[int, str, str]:
        program = shutil.which("git", path=self._environment.get("PATH"))
        if program is None:
            raise MemoryRemoteError(
                "git is not installed, and a sync needs it", "install git; memory itself works without it"
            )
        # A Ctrl-C that comes while git starts waits until there is somebody to end git.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                [program, *self._options, *words],
                cwd=self._git_dir,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise MemoryRemoteError(
                f"git cannot be started: {error.strerror}", "see `letta doctor`"
            ) from error
        with process:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                left = max(self._until - time.monotonic(), 0.0)
                output, errors = process.communicate(timeout=left)
            except subprocess.TimeoutExpired as error:
                raise MemoryRemoteError(
                    f"{mask(self.url)} did not answer within {self._seconds:g} seconds",
                    "is the network up, and does it ask for a password? try: "
                    f"git -C {shlex.quote(str(self._git_dir))} ls-remote {REMOTE}",
                    retryable=True,
                ) from error
            finally:
                _end(process)
        return process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")

    def _failed(self, what: str, code: int, errors: str) -> MemoryRemoteError:
        words = mask(_essence(errors), self.url) or f"git ended with code {code}"
        message = f"git {what} {mask(self.url)}: {words}"
        if any(sign in errors for sign in _LOGIN):
            return MemoryRemoteError(
                message,
                "git asks nobody during a sync: load the key into ssh-agent, or set up a credential helper",
            )
        later = any(sign in errors for sign in _LATER)
        hint = "memory is as it was; sync again when the network is back" if later else _hint(errors)
        return MemoryRemoteError(message, hint, retryable=later)

    def _refused_push(self, reason: str, errors: str) -> MemoryRemoteError:
        hint = "the remote's owner decides that; nothing was lost here"
        if "checked out" in reason:
            hint = "sync needs a bare repository there: git init --bare DIR"
        said = [line[8:].strip() for line in errors.splitlines() if line.startswith("remote: ")]
        words = "; ".join([reason, *(line for line in said[:3] if line)])
        return MemoryRemoteError(f"{mask(self.url)} refused the push: {mask(words, self.url)}", hint)


def _hint(errors: str) -> str:
    if "Host key verification failed" in errors:
        return "ssh does not know that host: connect to it once by hand (ssh HOST) and check its key"
    if "does not appear to be a git repository" in errors or "not found" in errors:
        return "make it first (git init --bare DIR), or correct the address: letta memory remote set URL"
    if "dubious ownership" in errors:
        return "that repository belongs to another user: change its owner, or add it to git's safe.directory"
    if "not allowed" in errors:
        return _KINDS
    return "memory is as it was; `letta memory remote show` shows the address"


def _essence(errors: str) -> str:
    """The lines of git's complaint that say what happened, as one."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    telling = [line for line in lines if not _NOISE.match(line)]
    return "; ".join((telling or lines)[:3])[:500]


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in environment.items() if not k.startswith("GIT_") or k in _KEPT}
    return kept | {
        "GIT_ALLOW_PROTOCOL": ":".join(_SCHEMES),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "SSH_ASKPASS_REQUIRE": "never",
        "GCM_INTERACTIVE": "never",
        "LC_ALL": "C",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and all it started; first politely, so that it removes its lock files."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
