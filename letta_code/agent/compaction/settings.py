"""An agent's compaction settings: `compaction` in its agent.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from letta_code.errors import UsageError

ChosenMode = Literal["sliding_window", "all"]

_SHARES = {"threshold": (0.3, 0.98), "keep": (0.05, 0.7)}
_PROMPT = 20_000  # characters


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """`threshold` is the part of the window behind which an answer causes a compaction, `keep` the part that
    `sliding_window` keeps as it is. `model` (a handle) writes the summary, "" for the conversation's own;
    `prompt` tells it how, "" for the packaged one."""

    mode: ChosenMode = "sliding_window"
    threshold: float = 0.9
    keep: float = 0.3
    model: str = ""
    prompt: str = ""


def read_settings(given: Mapping[str, Any]) -> tuple[CompactionSettings, tuple[str, ...]]:
    """The settings in `given`, and one line for each that is wrong and therefore as usual. Names that are
    not known, which other programs may have written, are left aside."""
    values: dict[str, Any] = {}
    problems = []
    for item in fields(CompactionSettings):
        if item.name in given:
            try:
                values[item.name] = checked(item.name, given[item.name])
            except UsageError as error:
                problems.append(error.message)
    return CompactionSettings(**values), tuple(problems)


def checked(name: str, value: object) -> object:
    """`value` as the setting `name` takes it.

    Raises:
        UsageError: it is none.
    """
    if name == "mode":
        if value not in get_args(ChosenMode):
            raise UsageError(f"compaction.mode is {value!r}", f"one of {', '.join(get_args(ChosenMode))}")
    elif name in _SHARES:
        low, high = _SHARES[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise UsageError(f"compaction.{name} is {value!r}", f"a part of the window, {low} to {high}")
        return float(value)
    elif not isinstance(value, str) or len(value) > _PROMPT:
        raise UsageError(
            f"compaction.{name} is not a text of at most {_PROMPT:,} characters", "give it as a string"
        )
    elif name == "model" and value and "/" not in value:
        raise UsageError(f"compaction.model is {value!r}", "write provider/name")
    return value
