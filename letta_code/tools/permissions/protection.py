"""Which files need more than a mode or a broad rule: this program's own, secrets, and files that other
programs run or obey. By where they are and what they are called; nothing is opened.

The lists are short on purpose: each name on them is one that holds credentials by convention, or that
runs code later, when nobody watches.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from letta_code.paths import Paths
from letta_code.tools.permissions.verdicts import Kind

# Secrets ------------------------------------------------------------------------------------------

_SECRET_NAMES = (
    *(".env", ".env.*", "*.env", ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass"),
    *(".htpasswd", ".vault-token", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.jks", "*.keystore"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"),
    *("service-account*.json", "service_account*.json", "credentials.json"),
    *(f"secrets.{kind}" for kind in ("yml", "yaml", "json", "toml")),
)
_NO_SECRET = re.compile(r".*\.(?:example|sample|template|dist|pub)", re.IGNORECASE | re.DOTALL)
_SECRET = re.compile("|".join(map(translate, _SECRET_NAMES)), re.IGNORECASE)
_SECRET_IN_HOME = (
    *(".aws/credentials", ".aws/sso", ".kube/config", ".docker/config.json", ".config/gh/hosts.yml"),
    *(".config/gcloud", ".azure", ".gnupg", ".password-store", ".local/share/keyrings"),
)


def secret(path: Path) -> bool:
    """Whether `path` (absolute, or only a name) holds credentials by its name."""
    if _SECRET.match(path.name) and not _NO_SECRET.fullmatch(path.name):
        return True
    return _in_home(path, _SECRET_IN_HOME)


# Files that other programs run or obey ------------------------------------------------------------

_OBEYED_IN_HOME = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc"),
    *(".zprofile", ".zshenv", ".zlogin", ".zlogout", ".config/fish", ".gitconfig", ".config/git", ".ssh"),
    *(".config/autostart", ".config/systemd", "Library/LaunchAgents", ".pythonstartup"),
)
_OBEYED_FOLDERS = {
    ".git": "inside a Git folder",
    ".vscode": "a file that an editor obeys",
    ".idea": "a file that an editor obeys",
    ".husky": "a file that runs with Git's commands",
    ".devcontainer": "a file that an editor obeys",
    ".claude": "a file that another agent obeys",
}
_OBEYED_NAMES = {
    ".envrc": "a file that direnv runs",
    ".mcp.json": "a file that starts programs",
    ".pre-commit-config.yaml": "a file that runs with Git's commands",
}


def obeyed(path: Path) -> str:
    """What makes writing `path` (absolute, or only a pattern's fixed part) dangerous later; "" for most
    files."""
    for part in path.parts:
        if reason := _OBEYED_FOLDERS.get(part.casefold()):
            return reason
    if reason := _OBEYED_NAMES.get(path.name.casefold()):
        return reason
    return "a personal settings file" if _in_home(path, _OBEYED_IN_HOME) else ""


def our_project_settings(path: Path) -> bool:
    """Whether `path` is a settings file of ours in some project: it may grant rights."""
    name = path.name.casefold()
    return name.startswith("settings") and path.parent.name.casefold() == ".letta"


def other_names(path: Path) -> int:
    """How many names besides `path` (resolved) the same file has: hard links."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return 0
    return 0 if os.path.isdir(path) else status.st_nlink - 1


def _in_home(path: Path, names: tuple[str, ...]) -> bool:
    text = str(path)
    for base in _homes(os.path.expanduser("~")):
        if text.startswith(base):
            inside = text[len(base) :]
            if any(inside == name or inside.startswith(f"{name}/") for name in names):
                return True
    return False


@lru_cache
def _homes(home: str) -> tuple[str, ...]:
    """The home folder as it is named and as it is, each with a slash behind it."""
    return tuple({f"{name.rstrip('/')}/" for name in (home, os.path.realpath(home)) if name != "/"})


# This program's own files -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """Where this program keeps agents, memory, conversations and settings. The agent reaches its own memory
    work tree, its own cut outputs and the skills; everything else there is closed to it in every mode.

    `closed`, `repository` and the others are resolved.
    """

    closed: tuple[Path, ...]
    memory: Path | None
    overflow: Path
    skills: Path

    @classmethod
    def of(cls, paths: Paths, memory: Path | None, overflow: Path) -> OwnFolders:
        """The folders of this person, for an agent with the work tree `memory`."""
        home = Path(os.path.expanduser("~"))
        closed = [paths.memfs, paths.config, paths.data, paths.cache, paths.log]
        if home.is_absolute() and home != Path("/"):
            closed.append(home / ".letta")  # Letta's own, whatever LETTA_HOME says
        return cls(
            tuple(dict.fromkeys(folder.resolve() for folder in closed)),
            None if memory is None else memory.resolve(),
            overflow.resolve(),
            paths.user_skills().resolve(),
        )

    def refuses(self, path: Path, kind: Kind) -> str:
        """Why the agent may not do this with `path` (resolved), or ""."""
        text, folders = f"{path}/", (*self.closed, *(() if self.memory is None else (self.memory.parent,)))
        if not any(text.startswith(f"{folder}/") for folder in folders):
            return ""  # for most: `is_relative_to` takes long
        if self.memory is not None:
            if path.is_relative_to(self.memory):
                return (
                    "it is where this memory keeps its history; `git commit` in $MEMORY_DIR writes it"
                    if kind == "write" and path.is_relative_to(self.memory / ".git")
                    else ""
                )
            if path.is_relative_to(self.memory.parent / "repo.git"):
                return (
                    "it is the repository of this memory: it is changed by commits in $MEMORY_DIR only"
                    if kind == "write"
                    else ""
                )
        if path.is_relative_to(self.skills) or (kind == "read" and path.is_relative_to(self.overflow)):
            return ""
        if any(path.is_relative_to(folder) for folder in self.closed):
            return (
                "it belongs to this program (settings, conversations, other agents' memory), which no "
                "agent may touch; the person can, with `letta` commands or an editor"
            )
        return ""

    def below(self, folder: Path) -> tuple[Path, ...]:
        """The closed folders that exist strictly below `folder` (resolved)."""
        return tuple(each for each in self.closed if each != folder and each.is_relative_to(folder))
