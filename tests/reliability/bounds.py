"""What may be left behind by many turns, and the report of a soak."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reliability.soak import Sample, Soak

MOST_GROWTH = 8 * 2**20
"""Bytes of resident memory between the end of the warm-up and the end: less than 5 kB a turn of 2,000."""


def warm(samples: Sequence[Sample]) -> Sample:
    """The sample at the end of the warm-up, which is the first quarter."""
    return samples[len(samples) // 4]


def beyond(samples: Sequence[Sample]) -> list[str]:
    """The bounds that were broken."""
    first, last = warm(samples), samples[-1]
    broken = []
    if (grown := last.resident - first.resident) > MOST_GROWTH:
        broken.append(f"resident memory grew by {grown / 2**20:.1f} MiB after the warm-up")
    for name in ("handles", "children", "threads", "tasks"):
        before, after = getattr(first, name), getattr(last, name)
        if after > before:
            broken.append(f"{name}: {before} after the warm-up, {after} at the end")
    return broken


def report(soak: Soak) -> str:
    """A short table."""
    lines = [
        f"{soak.played} turns in {len(soak.samples)} conversations, {soak.faults} with a fault, "
        f"{soak.interrupts} interrupted; every conversation whole, nothing refused",
        "",
        " after turns  resident MiB  handles  children  threads  tasks",
    ]
    picked = soak.samples[:: max(1, len(soak.samples) // 8)]
    for one in [*picked, soak.samples[-1]]:
        lines.append(
            f"{one.turns:>12} {one.resident / 2**20:>13.1f} {one.handles:>8} {one.children:>9} "
            f"{one.threads:>8} {one.tasks:>6}"
        )
    return "\n".join(lines)
