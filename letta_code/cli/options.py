"""What a person asked for on the command line of `letta` and `letta -p`, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class OutputFormat(StrEnum):
    """How `letta -p` answers."""

    text = "text"
    json = "json"
    stream_json = "stream-json"


class PermissionMode(StrEnum):
    """What tools may do without a question."""

    default = "default"
    acceptEdits = "acceptEdits"
    plan = "plan"
    bypassPermissions = "bypassPermissions"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a chat or a one-shot turn; None and empty mean: not given."""

    prompt: str | None = None
    print_mode: bool = False
    output_format: str = "text"
    model: str | None = None
    fallback_model: str | None = None
    base_url: str | None = None
    agent: str | None = None
    new_agent: bool = False
    resume: bool = False
    conversation: str | None = None
    new: bool = False
    fork: bool = False
    permission_mode: str | None = None
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    max_turns: int | None = None
    system_prompt: Path | None = None
    append_system_prompt: str = ""
    directory: Path | None = None
    added_directories: tuple[Path, ...] = ()
    sandbox: bool | None = None
    verbose: bool = False
