"""One settings file as JSON: reading values out of it, with errors that name the file and the value.

Which files there are and what they may decide is `loading` (the person's own) and `project`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from letta_code.errors import UsageError


def parsed(data: bytes, file: Path, warnings: list[str]) -> dict[str, Any]:
    """The object in `data`, the content of `file`. Nothing, or only blanks or NULs (a crash, a full disk),
    counts as empty, with a warning: rules that forbid something may have been in it.

    Raises:
        UsageError: it is not JSON, or not an object.
    """
    if not data.strip(b" \t\r\n\x00"):
        warnings.append(f"{file} is empty: no setting and no rule in it counts; defaults are used")
        return {}
    try:
        root = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not valid JSON: {error}", "correct it, or move it away to start with defaults"
        ) from error
    if not isinstance(root, dict):
        raise UsageError(f"{file} must hold a JSON object", "for example {}")
    return root


def section(root: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    """The object `name`, empty when it is missing. Raises `UsageError` when it is something else."""
    value = root.get(name, {})
    if not isinstance(value, dict):
        raise UsageError(f"{file}: {name} must be an object", f'for example "{name}": {{}}')
    return value


def words(root: Mapping[str, Any], name: str, file: Path) -> tuple[str, ...]:
    """The list of strings `name`. Raises `UsageError` when it is something else."""
    value = root.get(name, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f"{file}: {name} must be a list of strings", f'for example "{name}": []')
    return tuple(value)


def text(root: Mapping[str, Any], name: str, file: Path) -> str | None:
    """The string `name`, None when it is missing or empty. Raises `UsageError` when it is something
    else."""
    value = root.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{file}: {name} must be a string")
    return value or None


def environment(root: Mapping[str, Any], file: Path) -> dict[str, str]:
    """The variables of `env`. Raises `UsageError` when it is no object."""
    return {name: str(value) for name, value in section(root, "env", file).items()}
