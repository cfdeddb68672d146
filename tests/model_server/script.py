"""The script: which turns the server plays, and which one a request gets.

A script is a list of turns. A turn is a plain dict (see README.md beside this file for every key), so
that it can stand in a test, a YAML file or a JSON file. Nothing here knows HTTP or a provider's shape.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

STOPS = ("end_turn", "tool_use", "max_tokens", "refusal")
DROPS = ("before", "after_headers", "mid", "in_tool", "in_thinking")
HOWS = ("reset", "close", "eof")
WHENS = ("contains", "anywhere", "model")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a turn; `raw` is the text of the arguments as the model wrote it, broken or not."""

    name: str
    raw: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a turn. README.md says what each key does."""

    status: int | None = None
    headers: Mapping[str, str | Mapping[str, float]] | None = None
    body: Any = None
    raw: str | None = None
    message: str | None = None
    drop: str | None = None
    how: str = "reset"
    stall: float | str | None = None
    drip: float | None = None
    after: int | None = None
    garbage: str | bool | None = None
    event_error: str | None = None
    form: str = "event"
    no_signature: bool = False
    call_ids: str | None = None
    wrong_encoding: bool = False

    def __post_init__(self) -> None:
        _one_of("drop", self.drop, (None, *DROPS))
        _one_of("how", self.how, HOWS)
        _one_of("form", self.form, ("event", "failed"))
        _one_of("call_ids", self.call_ids, (None, "duplicate", "missing"))
        if isinstance(self.stall, str):
            _one_of("stall", self.stall, ("forever",))


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model. `index` is its place in the script."""

    index: int
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    usage: Mapping[str, int] | None = None
    stop: str = "end_turn"
    chunk: int = 24
    delay: float = 0.0
    fault: Fault | None = None
    when: Mapping[str, str] | None = None
    repeat: bool = False
    echo: bool = False
    lines: str | None = None
    optional: bool = False
    times: int = 1


def turn(text: str = "", *calls: Mapping[str, Any], **rest: Any) -> dict[str, Any]:
    """A turn as a dict, for scripts in Python: `turn("I look.", call("Read", file_path="a.py"))`."""
    made: dict[str, Any] = {"text": text} if text else {}
    if calls:
        made["tool_calls"] = list(calls)
    return made | rest


def call(_name: str, _id: str | None = None, /, **arguments: Any) -> dict[str, Any]:
    """A tool call as a dict: `call("Read", file_path="a.py")`."""
    made: dict[str, Any] = {"name": _name, "arguments": arguments}
    return made if _id is None else made | {"id": _id}


def load_script(path: Path) -> list[dict[str, Any]]:
    """The turns of a YAML or JSON file: a list, or a mapping with the list under `turns`."""
    text = path.read_text("utf-8")
    data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    if isinstance(data, dict):
        data = data.get("turns")
    if not isinstance(data, list):
        raise ValueError(f"{path}: a script is a list of turns")
    return data


def parse_turn(index: int, data: Mapping[str, Any]) -> Turn:
    """Check one turn of a script. Raises `ValueError` that names the turn and the key."""
    try:
        return _parse(index, dict(data))
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"turn {index} of the script: {error}") from error


def _parse(index: int, data: dict[str, Any]) -> Turn:
    calls = tuple(_parse_call(item) for item in data.pop("tool_calls", ()))
    fault = data.pop("fault", None)
    times = data.pop("times", 1)
    if fault is not None:
        fault = dict(fault)
        times = fault.pop("times", times)
        fault = Fault(**fault)
    data.setdefault("stop", "tool_use" if calls else "end_turn")
    _one_of("stop", data["stop"], STOPS)
    for key in data.get("when") or ():
        _one_of("a key of when", key, WHENS)
    known = {field.name for field in fields(Turn)} - {"index", "calls"}
    if unknown := set(data) - known:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    return Turn(index=index, calls=calls, fault=fault, times=times, **data)


def _parse_call(data: Mapping[str, Any]) -> Call:
    arguments = data.get("arguments", {})
    raw = data.get("raw")
    if raw is None and isinstance(arguments, Mapping) and set(arguments) == {"raw"}:
        raw = arguments["raw"]
    if raw is None:
        raw = json.dumps(arguments, ensure_ascii=False)
    if unknown := set(data) - {"name", "arguments", "raw", "id"}:
        raise ValueError(f"unknown keys of a tool call: {', '.join(sorted(unknown))}")
    return Call(data["name"], raw, data.get("id"))


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(map(repr, allowed))}")


class Script:
    """The turns that are still to be played. Safe to use from several threads."""

    def __init__(self, turns: Sequence[Mapping[str, Any]], *, loop: bool = False) -> None:
        self._all = [parse_turn(index, data) for index, data in enumerate(turns)]
        self._loop = loop
        self._lock = threading.Lock()
        self._left = self._fresh()

    def _fresh(self) -> list[tuple[Turn, int]]:
        return [(item, item.times) for item in self._all]

    @property
    def remaining(self) -> list[Turn]:
        """The turns that were not played; one with `repeat` counts until it played once, an optional one
        never."""
        with self._lock:
            return [item for item, left in self._left if left > 0 and not item.optional]

    def take(self, last: str, whole: str, model: str) -> Turn | None:
        """The turn for a request: the first one whose `when` holds, else the first one without `when`.

        `last` is the text of the last user or tool message, `whole` all text of the request.
        """
        with self._lock:
            found = self._find(last, whole, model)
            if found is None and self._loop:
                self._left = self._fresh()
                found = self._find(last, whole, model)
            if found is None:
                return None
            chosen, left = self._left[found]
            if chosen.repeat:
                self._left[found] = (chosen, 0)
            elif left > 1:
                self._left[found] = (chosen, left - 1)
            else:
                del self._left[found]
            return chosen

    def _find(self, last: str, whole: str, model: str) -> int | None:
        seen = {"contains": last, "anywhere": whole, "model": model}
        plain = None
        for place, (item, _) in enumerate(self._left):
            if item.when is None:
                plain = place if plain is None else plain
            elif all(wanted in seen[key] for key, wanted in item.when.items()):
                return place
        return plain
