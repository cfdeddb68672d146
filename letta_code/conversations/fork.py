"""A new conversation that begins as a copy of another one. Pure; the store reads and writes the files.

The copy ends at a checkpoint. Of a conversation that is open elsewhere it leaves out the step that runs
there: that step's outcome belongs to the other conversation. What a crash left unfinished is copied too, so
that the copy reports operations of unknown outcome as the original does.
"""

from __future__ import annotations

from collections.abc import Iterable

from letta_code.conversations.transcript import Record

_CHECKPOINTS = frozenset({"step", "turn", "undo"})


def copied(records: Iterable[Record], header: Record, origin: str, *, running: bool) -> list[Record]:
    """The records of the copy: `header`, which gets `forked_from`, then the others. `origin` is the
    original's id; `running`: another process has it open."""
    rest = [record for record in records if record["kind"] != "conversation"]
    turn = None
    if running:
        settled = [number for number, record in enumerate(rest, 1) if record["kind"] in _CHECKPOINTS]
        rest = rest[: settled[-1]] if settled else []
        turn = rest[-1].get("turn") if rest and rest[-1]["kind"] == "step" else None
    return [header | {"forked_from": {"id": origin, "running": turn}}, *rest]


def running_turn(header: Record) -> int | None:
    """The turn that was running in the original of a copy when it was made."""
    origin = header.get("forked_from")
    turn = origin.get("running") if isinstance(origin, dict) else None
    return turn if isinstance(turn, int) else None
