"""The settings that come with a project: `.letta/settings.json` and `.letta/settings.local.json`.

They come with the project, so they may tighten what the person set and never loosen it, until the person
trusts them (`trust`). A file that cannot be read or understood may forbid something, so it is never ignored.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from letta_code.errors import UsageError
from letta_code.nofollow import read_bytes
from letta_code.paths import project_settings
from letta_code.settings.file import environment, parsed, section, text, words

_LARGEST = 1_000_000  # bytes; what is larger is no settings file
_MODES = ("default", "acceptEdits", "plan")
_NEVER = ("model", "fallbackModel", "providers", "memory", "archive")
_OWN_VARIABLES = ("LETTA_", "MEMORY_DIR", "AGENT_ID", "CONVERSATION_ID")


@dataclass(frozen=True, slots=True)
class Loosening:
    """What a project's settings would allow that the person's own do not: it counts only when trusted.
    `allow` holds rules and the file they are in; `directories` are resolved."""

    allow: tuple[tuple[str, str], ...] = ()
    mode: str | None = None
    directories: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.allow or self.mode or self.directories or self.environment)


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """What the files of `folder` (resolved) say. `digest` (hex) changes with every byte of them, and when a
    folder that they add leads elsewhere; `ask` and `deny` hold rules and the file they are in; `roots` the
    objects themselves, by file; `never` names what is in them and never taken from a project."""

    folder: Path
    digest: str = ""
    ask: tuple[tuple[str, str], ...] = ()
    deny: tuple[tuple[str, str], ...] = ()
    loosens: Loosening = field(default_factory=Loosening)
    roots: tuple[tuple[Path, Mapping[str, Any]], ...] = ()
    never: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_project(project: Path) -> ProjectSettings:
    """Read the files of `project`.

    Raises:
        UsageError: a file leads out of the project, cannot be read, or is not understood.
    """
    folder = Path(os.path.realpath(project))
    hashed, warnings = sha256(), list[str]()
    roots: list[tuple[Path, Mapping[str, Any]]] = []
    for file in project_settings(folder):
        data = _content(file, folder)
        hashed.update(b"-" if data is None else b"%d:%s" % (len(data), data))
        if data is not None:
            roots.append((file, parsed(data, file, warnings)))
    rules: dict[str, tuple[tuple[str, str], ...]] = {"allow": (), "ask": (), "deny": ()}
    mode, directories, variables, never = None, tuple[str, ...](), dict[str, str](), list[str]()
    for file, root in roots:
        permissions = section(root, "permissions", file)
        for name in rules:
            rules[name] += tuple((rule, f".letta/{file.name}") for rule in words(permissions, name, file))
        wanted = text(permissions, "defaultMode", file)
        if wanted in _MODES:
            mode = wanted
        elif wanted is not None:
            never.append(f"permissions.defaultMode {wanted}")
        directories += tuple(
            _real(folder, name, file) for name in words(permissions, "additionalDirectories", file)
        )
        for name, value in environment(root, file).items():
            if name.startswith(_OWN_VARIABLES):
                never.append(f"env.{name}")
            else:
                variables[name] = value
        never += [name for name in _NEVER if name in root]
    hashed.update("\0".join(directories).encode("utf-8", "surrogateescape"))
    return ProjectSettings(
        folder,
        hashed.hexdigest(),
        rules["ask"],
        rules["deny"],
        Loosening(rules["allow"], mode, directories, variables),
        tuple(roots),
        tuple(dict.fromkeys(never)),
        tuple(warnings),
    )


def _real(folder: Path, name: str, file: Path) -> str:
    """Where a name in the settings leads: a link must not show one folder and open another."""
    try:
        return os.path.realpath(folder / os.path.expanduser(name))
    except ValueError as error:
        raise UsageError(f"{file}: additionalDirectories {name!r} is no folder") from error


def _content(file: Path, folder: Path) -> bytes | None:
    try:
        os.lstat(file)
        real = file.resolve(strict=True)
        if not real.is_relative_to(folder):
            raise UsageError(
                f"{file} leads out of the project, to {real}",
                "a project's settings are read from the project only: put a file there, or remove the link",
            )
        data = read_bytes(real, _LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.islink(file):
            raise UsageError(f"{file} is a link that leads nowhere", "remove it") from error
        return None
    except (OSError, RuntimeError) as error:
        reason = "it is not a file" if getattr(error, "errno", 0) == errno.EINVAL else str(error)
        raise UsageError(
            f"{file} cannot be read ({reason}), and it may forbid something",
            "make it readable, or move it away",
        ) from error
    if len(data) > _LARGEST:
        raise UsageError(f"{file} is too large for a settings file", "move it away")
    return data
