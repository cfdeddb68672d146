"""What a path held, and one change of it: the values of undo, and their form in the journal. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal["absent", "file", "link", "folder", "other", "unreadable", "behind"]
"""What can be at a path; `behind`: a part of the path is a file or a symlink."""

COMMAND = "command"
"""`Change.by` of what was found changed after a shell command."""


@dataclass(frozen=True, slots=True)
class State:
    """What is at a path. `sha256` (hex), `mode` (permission bits) and `size` (bytes) are those of a file,
    `target` is that of a symlink; `shared`: the file had other names (hard links). `problem` says why a
    content is not known or was not kept; a file without hash is the same as no other."""

    kind: Kind
    sha256: str = ""
    mode: int = 0
    size: int = 0
    target: str = ""
    problem: str = ""
    shared: bool = False

    def same(self, other: State) -> bool:
        """Whether both hold the same content; permission bits aside."""
        if self.kind == "file":
            return other.kind == "file" and bool(self.sha256) and self.sha256 == other.sha256
        return self.kind in ("absent", "link") and (self.kind, self.target) == (other.kind, other.target)


ABSENT = State("absent")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one path. `number` is its place in the journal, `path` absolute and resolved when it
    was changed, `by` a tool's name or `COMMAND`, `folders` what had to be made for it, outermost first.
    `command` is the shell command. `after` was noted before the change was made.
    `unsure`: the command was not seen to end, so the change may be somebody else's, and was noted long after
    `since`, the command's place in the journal. `operation` is set on what an undo did itself."""

    number: int
    turn: int
    by: str
    path: str
    before: State
    after: State
    folders: tuple[str, ...] = ()
    command: str = ""
    unsure: bool = False
    operation: str = ""
    since: int = 0

    @property
    def order(self) -> int:
        """Its place among the changes."""
        return self.since or self.number

    @property
    def by_command(self) -> bool:
        """Whether a shell command did it, and not a file tool."""
        return self.by == COMMAND


def dump_change(change: Change) -> dict[str, Any]:
    """The journal's record of a change, without its number."""
    record: dict[str, Any] = {"kind": "change", "turn": change.turn, "by": change.by, "path": change.path}
    record |= {"before": dump_state(change.before), "after": dump_state(change.after)}
    for name in ("folders", "command", "unsure", "operation", "since"):
        if value := getattr(change, name):
            record[name] = value
    return record


def load_change(record: Mapping[str, Any], number: int) -> Change:
    """The change of a record; raises `ValueError`, `KeyError` or `TypeError` when it is none."""
    return Change(
        number,
        int(record["turn"]),
        str(record["by"]),
        str(record["path"]),
        load_state(record["before"]),
        load_state(record["after"]),
        tuple(map(str, record.get("folders", ()))),
        str(record.get("command", "")),
        bool(record.get("unsure", False)),
        str(record.get("operation", "")),
        int(record.get("since", 0)),
    )


def dump_state(state: State) -> dict[str, Any]:
    """A state without what is empty."""
    names = ("kind", "sha256", "mode", "size", "target", "problem", "shared")
    return {name: value for name in names if (value := getattr(state, name))}


def load_state(data: Mapping[str, Any]) -> State:
    """The state of a record; raises `ValueError`, `KeyError` or `TypeError` when it is none."""
    kind = data["kind"]
    if kind not in get_args(Kind):
        raise ValueError(f"no such kind: {kind!r}")
    return State(
        kind,
        str(data.get("sha256", "")),
        int(data.get("mode", 0)),
        int(data.get("size", 0)),
        str(data.get("target", "")),
        str(data.get("problem", "")),
        bool(data.get("shared", False)),
    )
