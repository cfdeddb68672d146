"""What an undo would do: which turns, and for each file what it gets back or why it is left. No I/O: the
files' present states are asked from the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from letta_code.undo.states import ABSENT, Change, State
from letta_code.undo.store import KEPT, Command, Log

Action = Literal["restore", "remove", "nothing", "leave"]
Why = Literal["", "newer", "command", "between", "unsure", "gone", "blocked", "lost"]
"""Why a file is left (or only brought part of the way): a newer change of the person's, one by a command,
the person's change between two of the agent's, a command that was not seen to end, it is not there any
more, it cannot be touched, its content is not kept."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What happens to one file. `numbers` are the changes that this takes back. `folders` may go with it
    when they are empty. `command` names the command whose doing is taken back, or stands in the way.
    `detail` is more about `why`."""

    path: str
    action: Action
    now: State
    target: State
    numbers: tuple[int, ...]
    turn: int
    why: Why = ""
    command: str = ""
    by_command: bool = False
    folders: tuple[str, ...] = ()
    detail: str = ""

    @property
    def goes(self) -> bool:
        """Whether nothing is at the path in the end."""
        return self.target == ABSENT and self.action in ("remove", "nothing")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan has to ask: what is at a path now, whether a state's content is kept, and which paths are
    in a folder (None: not known)."""

    now: Callable[[str], State]
    kept: Callable[[State], bool]
    entries: Callable[[str], Iterable[str] | None]


@dataclass(frozen=True, slots=True)
class Options:
    """What the person wants: how many `turns` (the last ones), whether what `commands` changed is taken
    back as well, and whether newer changes are overwritten (`force`)."""

    turns: int = 1
    commands: bool = False
    force: bool = False


def turns_to_undo(log: Log, options: Options) -> tuple[int, ...]:
    """The last turns whose changes can be taken back, the oldest first."""
    found = {change.turn for change in pending(log) if options.commands or not change.by_command}
    if options.commands:
        found |= {command.turn for command in doubtful(log)}
    return tuple(sorted(found)[-options.turns :])


def doubtful(log: Log) -> list[Command]:
    """The commands that were not seen to end: in the background, interrupted, or we died."""
    return [command for command in log.commands.values() if command.mark is not None and not command.ended]


def pending(log: Log) -> list[Change]:
    """The changes by tools and commands that are not taken back, in order."""
    found = (change for change in log.changes if not change.operation and change.number not in log.undone)
    return sorted(found, key=lambda change: change.order)


def planned(
    log: Log,
    changes: Iterable[Change],
    options: Options,
    facts: Facts,
) -> tuple[FilePlan, ...]:
    """The plan for `changes` (those of the chosen turns, in order), file by file."""
    by_path = _by_path(changes)
    by_commands = _by_path(change for change in log.changes if change.by_command)

    def plan(path: str, now: State) -> FilePlan:
        chosen = [change for change in by_path[path] if options.commands or not change.by_command]
        plan = _file(chosen, by_commands.get(path, ()), now, options, facts.kept)
        skipped = [change for change in by_path[path] if change.order < chosen[0].order]
        if skipped and not plan.why and plan.action in ("restore", "remove"):
            plan = replace(plan, why="between", command=skipped[-1].command)
        return plan

    tools = {path for path, those in by_path.items() if not all(change.by_command for change in those)}
    plans = {path: plan(path, facts.now(path)) for path in (by_path if options.commands else tools)}
    freed = _freed(list(plans.values()), facts)
    for path, first in plans.items():
        if first.now.kind in ("folder", "behind") and freed(first):
            plans[path] = plan(path, ABSENT)
    return tuple(sorted(plans.values(), key=lambda plan: (plan.by_command, plan.path)))


def _by_path(changes: Iterable[Change]) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(change.path, []).append(change)
    return found


def _freed(plans: Sequence[FilePlan], facts: Facts) -> Callable[[FilePlan], bool]:
    """What tells whether the folder at a plan's path, or the file or link above it, does not count: it goes
    in this undo, or is what an undo that was broken off has put back there."""
    cleared = {plan.path for plan in plans if plan.action == "remove"}
    folders = {folder for plan in plans if plan.goes for folder in plan.folders}
    for folder in sorted(folders, key=len, reverse=True):
        entries = facts.entries(folder)
        if entries is not None and cleared.issuperset(entries):
            cleared.add(folder)
    back = {plan.path for plan in plans if plan.action == "nothing" and not plan.goes}
    above = {parent for path in back for parent in _parents(path)}

    def freed(plan: FilePlan) -> bool:
        if plan.path in above:
            return plan.target == ABSENT
        return not (cleared | back).isdisjoint((plan.path, *_parents(plan.path)))

    return freed


def _parents(path: str) -> Iterable[str]:
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _file(
    chosen: Sequence[Change],
    by_commands: Sequence[Change],
    now: State,
    options: Options,
    kept: Callable[[State], bool],
) -> FilePlan:
    first = _chain(chosen)
    taken = chosen if options.force else chosen[first:]
    last, target = taken[-1], taken[0].before
    target = replace(target, mode=_wanted_mode(now, last.after, target))

    def plan(action: Action, why: Why = "", detail: str = "", command: str = "") -> FilePlan:
        return FilePlan(
            last.path,
            action,
            now,
            target,
            tuple(change.number for change in taken),
            last.turn,
            why,
            command or next((change.command for change in taken if change.by_command), ""),
            all(change.by_command for change in chosen),
            tuple(folder for change in taken for folder in change.folders) if target == ABSENT else (),
            detail,
        )

    if now.same(target) and now.mode == target.mode:
        return plan("nothing")
    if now.kind in ("folder", "other", "unreadable", "behind"):
        return plan("leave", "blocked", now.problem)
    if not options.force:
        if last.unsure and now != ABSENT:
            return plan("leave", "unsure")
        if not now.same(last.after) and not now.same(target):
            return _newer(plan, now, last, by_commands)
    if problem := _fixed(now, target, last.after):
        return plan("leave", "blocked", problem)
    if target == ABSENT:
        return plan("remove")
    if target.kind not in ("file", "link"):
        return plan("leave", "blocked", "it was not an ordinary file before")
    if target.kind == "file" and not now.same(target) and not kept(target):
        return plan("leave", "lost", target.problem)
    if not first or options.force:
        return plan("restore")
    if chosen[first - 1].unsure:
        return plan("restore", "unsure", command=chosen[first - 1].command)
    between = next((other for other in by_commands if other.after.same(target)), None)
    return plan("restore", "between", command=between.command if between is not None else "")


def _newer(
    plan: Callable[..., FilePlan], now: State, last: Change, by_commands: Sequence[Change]
) -> FilePlan:
    """The plan for a file that holds neither what it got nor what it had."""
    later = [change for change in by_commands if change.order > last.order and not change.unsure]
    if later and later[0].before.same(last.after) and later[-1].after.same(now):
        return plan("leave", "command", command=later[-1].command)
    return plan("leave", "gone" if now == ABSENT else "newer")


def _fixed(now: State, target: State, after: State) -> str:
    """Why a file that is there is not touched."""
    if now.kind != "file" or (now.sha256 and now.same(target)):
        return ""
    if not now.sha256:
        return now.problem
    if now.size > KEPT:
        return f"what it holds now is larger than {KEPT // 1_000_000} MB and cannot be kept"
    protected = not now.mode & 0o222 and now.mode != after.mode
    return "it is write-protected" if protected else ""


def _chain(chosen: Sequence[Change]) -> int:
    """Where the unbroken chain of changes that ends with the last begins. It breaks where a file did not
    hold what the change before had made of it: somebody else had changed it between. So may have who
    changed it while a command ran that was not seen to end."""
    start = len(chosen) - 1
    while start:
        earlier, later = chosen[start - 1], chosen[start]
        happened = earlier.after.same(later.before)
        if not happened and not earlier.before.same(later.before):
            break
        if earlier.unsure and earlier.after != ABSENT:
            break
        start -= 1
    return start


def _wanted_mode(now: State, after: State, before: State) -> int:
    """The permission bits to restore: those from before, unless somebody has changed them since."""
    if before.kind != "file":
        return 0
    if now.kind == "file" and now.mode != after.mode and after.kind == "file":
        return now.mode
    return before.mode
