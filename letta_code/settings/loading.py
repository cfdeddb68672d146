"""Settings: what the person set, read from JSON files in the format that users of Letta Code and Claude
Code already have.

::

    {"model": "anthropic/claude-sonnet-5-5",
     "fallbackModel": "openai/gpt-6.2-sol",
     "permissions": {"allow": [], "ask": [], "deny": [], "defaultMode": "default",
                     "additionalDirectories": []},
     "env": {"NAME": "value for the shell tool"},
     "memory": {"review": "off", "sync": "manual", "budget": 0.1},
     "archive": {"embedding": "openai/text-embedding-3-small"},
     "sandbox": {"enabled": false, "network": true, "write": []},
     "providers": {"openai": {"api_key": "…", "base_url": "…"}}}

Only the person's own file counts in full. A project's files (`project`) may tighten, and loosen
only when the person trusts them; no model, key or address is ever taken from them. Keys that we do not know
are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from letta_code.errors import StorageError, UsageError
from letta_code.paths import Paths
from letta_code.settings.file import environment, parsed, section, text, words
from letta_code.settings.project import Loosening, ProjectSettings, read_project
from letta_code.settings.trust import TrustStore
from letta_code.storage import write_atomically

MODES = ("default", "acceptEdits", "plan", "bypassPermissions")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Key and address of one provider, where the person set them."""

    api_key: str | None = None
    base_url: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """Permission rules in the syntax of `tools.rules`, and where tools may work besides the project.
    `origins` says for people where a rule is, by what it does ("allow", …) and its text."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: str = "default"
    directories: tuple[str, ...] = ()
    origins: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def joined(self, project: ProjectSettings, trusted: bool) -> PermissionSettings:
        """These with what a project's files tighten and, when it is trusted, loosen."""
        loosens = project.loosens if trusted else Loosening()
        rules = {"allow": loosens.allow, "ask": project.ask, "deny": project.deny}
        origins = {(kind, rule): file for kind, found in rules.items() for rule, file in found}
        return PermissionSettings(
            allow=(*self.allow, *(rule for rule, _ in loosens.allow)),
            ask=(*self.ask, *(rule for rule, _ in project.ask)),
            deny=(*self.deny, *(rule for rule, _ in project.deny)),
            mode=loosens.mode or self.mode,
            directories=(*self.directories, *loosens.directories),
            origins={**origins, **self.origins},
        )


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How memory is kept. `review` "hold" keeps what the person did not state on a side branch until they
    confirm it; `sync` "turn" syncs with the remote after each turn; `budget` is the share of the model's
    window that `system/` may take before a warning."""

    review: Literal["off", "hold"] = "off"
    sync: Literal["manual", "turn"] = "manual"
    budget: float = 0.1


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """How the archive is searched by meaning. `embedding` is the model that makes vectors, as provider/name;
    "local": the one of the extra letta-code[embeddings]; "off": words alone; None: the local one where it is
    installed."""

    embedding: str | None = None


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The sandbox for shell commands: whether it is used, whether commands reach the network in it, and
    folders they may write besides the project (`~` and relative to the project)."""

    enabled: bool = False
    network: bool = True
    write: tuple[str, ...] = ()

    def tightened(self, other: SandboxSettings) -> SandboxSettings:
        """These settings with what `other` forbids; nothing that it allows."""
        return SandboxSettings(self.enabled or other.enabled, self.network and other.network, self.write)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is set, defaults filled in."""

    model: str | None = None
    fallback_model: str | None = None
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    environment: Mapping[str, str] = field(default_factory=dict)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    untrusted: ProjectSettings | None = None
    """A project's settings that would loosen something, and that the person has not trusted."""


def load_settings(paths: Paths, project: Path | None = None) -> Settings:
    """Read the person's settings and, for `project` (a folder), what its files tighten.

    An unreadable or empty file counts as not there and becomes a warning.

    Raises:
        UsageError: a file is not JSON or a value has the wrong type. Rules may be in it that forbid
            something, so it is never ignored.
    """
    warnings: list[str] = []
    file = paths.settings()
    own = _read(file, warnings)
    permissions, sandbox = _permissions(own, file), _sandbox(own, file)
    variables, untrusted = environment(own, file), None
    if project is not None:
        found = read_project(project)
        warnings += found.warnings
        for each, root in found.roots:
            sandbox = sandbox.tightened(_sandbox(root, each))
        trusted = not found.loosens or TrustStore(paths).trusts(found.folder, found.digest)
        permissions = permissions.joined(found, trusted)
        if trusted:
            variables |= found.loosens.environment
        else:
            untrusted = found
    return Settings(
        model=text(own, "model", file),
        fallback_model=_handle(own, "fallbackModel", file),
        permissions=permissions,
        memory=_memory(own, file),
        archive=_archive(own, file),
        sandbox=sandbox,
        environment=variables,
        providers=_providers(own, file),
        warnings=tuple(warnings),
        untrusted=untrusted,
    )


def get_value(paths: Paths, key: str) -> Any:
    """The value at a dotted `key` of the person's settings file, or None when it is not set; all of it
    for an empty key."""
    node: Any = _read(paths.settings(), [])
    for part in key.split(".") if key else ():
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return node


def set_value(paths: Paths, key: str, value: Any) -> None:
    """Set a dotted `key` of the person's settings file to a JSON value; None removes it.

    Raises:
        UsageError: the result would not be valid settings; the file is unchanged.
        StorageError: the file is there and cannot be read, or not written; it is unchanged.
    """
    try:
        root = parsed(paths.settings().read_bytes(), paths.settings(), [])
    except FileNotFoundError:
        root = {}
    except OSError as error:  # written anew, it would lose what is in it
        raise StorageError(
            f"{paths.settings()} cannot be read: {error.strerror}", "check its owner, or move it away"
        ) from error
    *parents, last = key.split(".")
    node = root
    for part in parents:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise UsageError(f"{key}: {part} is not a group of settings", "see `letta config get`")
        node = child
    if value is None:
        node.pop(last, None)
    else:
        node[last] = value
    _permissions(root, paths.settings())
    text(root, "model", paths.settings())
    _handle(root, "fallbackModel", paths.settings())
    _memory(root, paths.settings())
    _archive(root, paths.settings())
    _sandbox(root, paths.settings())
    _providers(root, paths.settings())
    encoded = json.dumps(root, indent=2, ensure_ascii=False) + "\n"
    write_atomically(paths.settings(), encoded.encode())


def _read(file: Path, warnings: list[str]) -> dict[str, Any]:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        # NotADirectoryError, PermissionError, …: start with defaults, and say so.
        warnings.append(f"{file} cannot be read ({error.strerror}); defaults are used")
        return {}
    return parsed(data, file, warnings)


def _handle(section: Mapping[str, Any], name: str, file: Path) -> str | None:
    handle = text(section, name, file)
    if handle is not None and not all(part.strip() for part in handle.partition("/")[::2]):
        raise UsageError(f"{file}: {name} {handle!r} is not a model", "write provider/name")
    return handle


def _permissions(root: Mapping[str, Any], file: Path) -> PermissionSettings:
    given = section(root, "permissions", file)
    rules = {name: words(given, name, file) for name in ("allow", "ask", "deny")}
    return PermissionSettings(
        rules["allow"],
        rules["ask"],
        rules["deny"],
        _mode(given, file),
        words(given, "additionalDirectories", file),
        {(name, rule): "your settings" for name, found in rules.items() for rule in found},
    )


def _mode(permissions: Mapping[str, Any], file: Path) -> str:
    mode = text(permissions, "defaultMode", file) or "default"
    if mode not in MODES:
        raise UsageError(f"{file}: defaultMode {mode!r} is not known", f"one of {', '.join(MODES)}")
    return mode


def _memory(root: Mapping[str, Any], file: Path) -> MemorySettings:
    given, usual = section(root, "memory", file), MemorySettings()
    review, sync = given.get("review", usual.review), given.get("sync", usual.sync)
    budget = given.get("budget", usual.budget)
    if review not in ("off", "hold"):
        raise UsageError(f"{file}: memory.review {review!r} is not known", "one of off, hold")
    if sync not in ("manual", "turn"):
        raise UsageError(f"{file}: memory.sync {sync!r} is not known", "one of manual, turn")
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget <= 1:
        raise UsageError(f"{file}: memory.budget must be a share of the window", "for example 0.1")
    return MemorySettings(review, sync, float(budget))


def _archive(root: Mapping[str, Any], file: Path) -> ArchiveSettings:
    given = section(root, "archive", file)
    chosen = text(given, "embedding", file)
    return ArchiveSettings(chosen if chosen in ("local", "off") else _handle(given, "embedding", file))


def _sandbox(root: Mapping[str, Any], file: Path) -> SandboxSettings:
    given, usual = section(root, "sandbox", file), SandboxSettings()
    enabled, network = given.get("enabled", usual.enabled), given.get("network", usual.network)
    for name, value in (("enabled", enabled), ("network", network)):
        if not isinstance(value, bool):
            raise UsageError(f"{file}: sandbox.{name} {value!r} is not known", "one of true, false")
    return SandboxSettings(enabled, network, words(given, "write", file))


def _providers(root: Mapping[str, Any], file: Path) -> dict[str, ProviderSettings]:
    providers = {}
    for name in section(root, "providers", file):
        given = section(section(root, "providers", file), name, file)
        providers[name] = ProviderSettings(text(given, "api_key", file), text(given, "base_url", file))
    return providers
