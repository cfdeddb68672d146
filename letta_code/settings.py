"""Settings: what the person set, read from JSON files in the format that users of Letta Code and Claude
Code already have.

::

    {"model": "anthropic/claude-sonnet-5-5",
     "fallbackModel": "openai/gpt-6.2-sol",
     "permissions": {"allow": [], "ask": [], "deny": [], "defaultMode": "default",
                     "additionalDirectories": []},
     "env": {"NAME": "value for the shell tool"},
     "memory": {"review": "off", "sync": "manual", "budget": 0.1},
     "sandbox": {"enabled": false, "network": true, "write": []},
     "providers": {"openai": {"api_key": "…", "base_url": "…"}}}

Only the person's own file counts in full. A project's files come with the project, so they may tighten
(`ask`, `deny`) and never loosen: no allow rule, mode, model, key or address is taken from them. Keys
that we do not know are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from letta_code.errors import UsageError
from letta_code.paths import Paths, project_settings
from letta_code.storage import write_atomically

MODES = ("default", "acceptEdits", "plan", "bypassPermissions")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Key and address of one provider, where the person set them."""

    api_key: str | None = None
    base_url: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """Permission rules in the syntax of `tools.rules`, and where tools may work besides the project."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: str = "default"
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """How memory is kept. `review` "hold" keeps what the person did not state on a side branch until they
    confirm it; `sync` "turn" syncs with the remote after each turn; `budget` is the share of the model's
    window that `system/` may take before a warning."""

    review: Literal["off", "hold"] = "off"
    sync: Literal["manual", "turn"] = "manual"
    budget: float = 0.1


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
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    environment: Mapping[str, str] = field(default_factory=dict)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def load_settings(paths: Paths, project: Path | None = None) -> Settings:
    """Read the person's settings and, for `project` (a folder), what its files tighten.

    An unreadable or empty file counts as not there and becomes a warning.

    Raises:
        UsageError: a file is not JSON or a value has the wrong type. Rules may be in it that forbid
            something, so it is never ignored.
    """
    warnings: list[str] = []
    own = _read(paths.settings(), warnings)
    permissions = _section(own, "permissions", paths.settings())
    ask, deny = _words(permissions, "ask", paths.settings()), _words(permissions, "deny", paths.settings())
    sandbox = _sandbox(own, paths.settings())
    for file in project_settings(project) if project is not None else ():
        root = _read(file, warnings)
        sandbox = sandbox.tightened(_sandbox(root, file))
        section = _section(root, "permissions", file)
        ask += _words(section, "ask", file)
        deny += _words(section, "deny", file)
    return Settings(
        model=_text(own, "model", paths.settings()),
        fallback_model=_handle(own, "fallbackModel", paths.settings()),
        permissions=PermissionSettings(
            allow=_words(permissions, "allow", paths.settings()),
            ask=ask,
            deny=deny,
            mode=_mode(permissions, paths.settings()),
            directories=_words(permissions, "additionalDirectories", paths.settings()),
        ),
        memory=_memory(own, paths.settings()),
        sandbox=sandbox,
        environment={name: str(value) for name, value in _section(own, "env", paths.settings()).items()},
        providers=_providers(own, paths.settings()),
        warnings=tuple(warnings),
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
    """
    root = _read(paths.settings(), [])
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
    permissions = _section(root, "permissions", paths.settings())
    for name in ("allow", "ask", "deny", "additionalDirectories"):
        _words(permissions, name, paths.settings())
    _mode(permissions, paths.settings())
    _text(root, "model", paths.settings())
    _handle(root, "fallbackModel", paths.settings())
    _memory(root, paths.settings())
    _sandbox(root, paths.settings())
    _providers(root, paths.settings())
    text = json.dumps(root, indent=2, ensure_ascii=False) + "\n"
    write_atomically(paths.settings(), text.encode())


def _read(file: Path, warnings: list[str]) -> dict[str, Any]:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        # NotADirectoryError, PermissionError, …: start with defaults, and say so.
        warnings.append(f"{file} cannot be read ({error.strerror}); defaults are used")
        return {}
    if not data.strip(b" \t\r\n\x00"):
        if data:
            warnings.append(f"{file} is empty; defaults are used")
        return {}
    try:
        root = json.loads(data)
    except ValueError as error:
        raise UsageError(
            f"{file} is not valid JSON: {error}", "correct it, or move it away to start with defaults"
        ) from error
    if not isinstance(root, dict):
        raise UsageError(f"{file} must hold a JSON object", "for example {}")
    return root


def _section(root: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    value = root.get(name, {})
    if not isinstance(value, dict):
        raise UsageError(f"{file}: {name} must be an object", f'for example "{name}": {{}}')
    return value


def _words(section: Mapping[str, Any], name: str, file: Path) -> tuple[str, ...]:
    value = section.get(name, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f"{file}: {name} must be a list of strings", f'for example "{name}": []')
    return tuple(value)


def _text(section: Mapping[str, Any], name: str, file: Path) -> str | None:
    value = section.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{file}: {name} must be a string")
    return value or None


def _handle(section: Mapping[str, Any], name: str, file: Path) -> str | None:
    handle = _text(section, name, file)
    if handle is not None and not all(part.strip() for part in handle.partition("/")[::2]):
        raise UsageError(f"{file}: {name} {handle!r} is not a model", "write provider/name")
    return handle


def _mode(permissions: Mapping[str, Any], file: Path) -> str:
    mode = _text(permissions, "defaultMode", file) or "default"
    if mode not in MODES:
        raise UsageError(f"{file}: defaultMode {mode!r} is not known", f"one of {', '.join(MODES)}")
    return mode


def _memory(root: Mapping[str, Any], file: Path) -> MemorySettings:
    section, usual = _section(root, "memory", file), MemorySettings()
    review, sync = section.get("review", usual.review), section.get("sync", usual.sync)
    budget = section.get("budget", usual.budget)
    if review not in ("off", "hold"):
        raise UsageError(f"{file}: memory.review {review!r} is not known", "one of off, hold")
    if sync not in ("manual", "turn"):
        raise UsageError(f"{file}: memory.sync {sync!r} is not known", "one of manual, turn")
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget <= 1:
        raise UsageError(f"{file}: memory.budget must be a share of the window", "for example 0.1")
    return MemorySettings(review, sync, float(budget))


def _sandbox(root: Mapping[str, Any], file: Path) -> SandboxSettings:
    section, usual = _section(root, "sandbox", file), SandboxSettings()
    enabled, network = section.get("enabled", usual.enabled), section.get("network", usual.network)
    for name, value in (("enabled", enabled), ("network", network)):
        if not isinstance(value, bool):
            raise UsageError(f"{file}: sandbox.{name} {value!r} is not known", "one of true, false")
    return SandboxSettings(enabled, network, _words(section, "write", file))


def _providers(root: Mapping[str, Any], file: Path) -> dict[str, ProviderSettings]:
    providers = {}
    for name in _section(root, "providers", file):
        section = _section(_section(root, "providers", file), name, file)
        providers[name] = ProviderSettings(_text(section, "api_key", file), _text(section, "base_url", file))
    return providers
