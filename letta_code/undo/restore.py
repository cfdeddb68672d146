"""Carrying an undo out: files get back what they held, all or nothing for each file.

Before a file is touched, what it holds now is kept and the journal says what will be done, so that an undo
can itself be taken back (`redo`), also one that a crash broke off.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal

from letta_code.undo import disk
from letta_code.undo.copies import ProjectCopies, key_of
from letta_code.undo.plan import Facts, FilePlan, Options, doubtful, pending, planned, turns_to_undo
from letta_code.undo.states import ABSENT, COMMAND, Change, State, dump_change
from letta_code.undo.store import Command, UndoStore

Result = Literal["restored", "removed", "unchanged", "left"]

_COPIES_GONE = "it was not seen to end, and the copies from before it are gone"

UNDO = "undo"
"""`Change.by` of what an undo did."""


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file."""

    plan: FilePlan
    result: Result

    @property
    def done(self) -> bool:
        """Whether the file is as it was before the turn, as far as it goes without the person's changes."""
        return self.result != "left" and not self.plan.why


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an undo did, or with `dry` would do. `others` are files that commands changed in these turns and
    that were not to be touched; `uncovered` commands whose changes are not known, and why; `skipped` later
    turns in which only commands changed files."""

    turns: tuple[int, ...]
    files: tuple[FileResult, ...]
    others: tuple[FilePlan, ...] = ()
    uncovered: tuple[tuple[str, str], ...] = ()
    skipped: tuple[int, ...] = ()
    dry: bool = False


class Undo:
    """The undo of one conversation. Whoever calls `undo` or `redo` holds the conversation's lock. `copies`
    tells where the copies of a project are."""

    def __init__(self, store: UndoStore, copies: Callable[[Path], Path]) -> None:
        self._store = store
        self._copies = copies
        self._loaded: dict[str, bytes] = {}

    def preview(self, options: Options) -> Outcome:
        """What `undo` would do; changes nothing.

        Raises:
            StorageError: our files cannot be read.
        """
        turns = turns_to_undo(self._store.log, options)
        return self._outcome(turns, options, self._changes(turns), dry=True)

    def undo(self, options: Options) -> Outcome:
        """Take back the last turns' changes.

        Raises:
            StorageError: our files cannot be read or written; files done so far stay done.
        """
        turns = turns_to_undo(self._store.log, options)
        self._sweep()
        if options.commands:
            self._settle(turns)
        outcome = self._outcome(turns, options, self._changes(turns))
        if not turns:
            return outcome
        operation = secrets.token_hex(6)
        files = self._carried_out(outcome, operation)
        handled = [number for file in files if file.result != "left" for number in file.plan.numbers]
        self._store.append({"kind": "undone", "operation": operation, "handled": handled})
        return replace(outcome, files=files)

    def redo(self, force: bool = False, dry: bool = False) -> Outcome:
        """Bring back what the last undo took away.

        Raises:
            StorageError: as `undo`.
        """
        log = self._store.log
        if not log.operations:
            return Outcome((), (), dry=dry)
        if not dry:
            self._sweep()
        last = log.operations[-1]
        together = {operation.id for operation in log.with_broken_off(last)}
        changes = [change for change in log.changes if change.operation in together]
        outcome = self._outcome(last.turns, Options(force=force), changes, dry=dry)
        if dry:
            return outcome
        operation = secrets.token_hex(6)
        files = self._carried_out(outcome, operation, last.id)
        left = {file.plan.path for file in files if file.result == "left"}
        paths = {change.number: change.path for change in log.changes}
        handled = [number for number in sorted(last.handled) if paths.get(number) not in left]
        self._store.append({"kind": "undone", "operation": operation, "handled": handled})
        return replace(outcome, files=files)

    # Looking --------------------------------------------------------------------------------------

    def _changes(self, turns: Sequence[int]) -> list[Change]:
        """All changes of the turns that are not taken back, those of doubtful commands included."""
        found = [change for change in pending(self._store.log) if change.turn in turns]
        for command in doubtful(self._store.log):
            if command.turn in turns:
                found += self._differences(command)
        return sorted(found, key=lambda change: change.order)

    def _outcome(
        self, turns: tuple[int, ...], options: Options, changes: Sequence[Change], dry: bool = False
    ) -> Outcome:
        log = self._store.log
        states: dict[str, State] = {}

        def now(path: str) -> State:
            if path not in states:
                states[path], _ = disk.look(path)
            return states[path]

        facts = Facts(now, self._kept, disk.entries)
        plans = planned(log, changes, options, facts)
        covered = {plan.path for plan in plans}
        others: tuple[FilePlan, ...] = ()
        if not options.commands:
            by_commands = [c for c in changes if c.by_command and c.path not in covered]
            others = planned(log, by_commands, replace(options, commands=True), facts)
        since = turns[0] if turns else 0
        commands = [command for command in log.commands.values() if command.note and command.turn >= since]
        changed = {change.turn for change in pending(log)} | {command.turn for command in doubtful(log)}
        later = {turn for turn in changed if not turns or turn > turns[-1]}
        return Outcome(
            turns,
            tuple(FileResult(plan, _promised(plan)) for plan in plans),
            tuple(plan for plan in others if plan.action != "nothing"),
            tuple((command.command, command.note) for command in commands),
            tuple(sorted(later)),
            dry,
        )

    def _kept(self, state: State) -> bool:
        return state.kind == "link" or self._content(state) is not None

    def _content(self, state: State) -> bytes | None:
        return self._loaded.get(state.sha256) if state.sha256 in self._loaded else self._store.content(state)

    def _differences(self, command: Command) -> list[Change]:
        """What is different since a command began that was not seen to end: up to the next change of a file
        that is known, else up to now."""
        assert command.mark is not None
        project = Path(command.project)
        copies = ProjectCopies(self._copies(project), project)
        found = copies.at(command.mark)
        if found is None:
            command.note = _COPIES_GONE
            return []
        later = sorted(self._store.log.changes, key=lambda change: change.order, reverse=True)
        known = {change.path: change.before for change in later if change.order > command.number}
        changes = []
        for name, copy in found[0].items():
            path = project / name
            try:
                if str(path) not in known and key_of(path.lstat()) == copy.key and not copy.young:
                    continue
            except OSError:
                pass
            state = known.get(str(path)) or disk.held(str(path))
            if state.same(copy.state) and state.mode == copy.state.mode:
                continue
            raw = copies.content(copy, command.mark.generation)
            if raw is not None:
                self._loaded[copy.sha256] = raw
            changes.append(_doubt(command, path, copy.state, state))
        for name, target in found[1].items():
            state = known.get(str(project / name)) or disk.held(str(project / name))
            before = State("link", target=target)
            if not state.same(before):
                changes.append(_doubt(command, project / name, before, state))
        return changes

    # Doing ----------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Remove the temporary files of the undos since the last whole one, which were broken off."""
        log = self._store.log
        begun = reversed(log.begun.values())
        broken_off = {operation.id for operation in takewhile(lambda each: not each.finished, begun)}
        for change in log.changes:
            if change.operation in broken_off:
                disk.discard(os.path.join(os.path.dirname(change.path), _temporary(change.operation)))

    def _settle(self, turns: Sequence[int]) -> None:
        """Record what doubtful commands may have done, so that it has numbers and its contents are kept."""
        for command in doubtful(self._store.log):
            if command.turn in turns:
                changes = self._differences(command)
                self._store.hold(change.before for change in pending(self._store.log) if change.turn in turns)
                for change in changes:
                    if (raw := self._loaded.get(change.before.sha256)) is not None:
                        self._store.keep(raw, durable=False)
                self._store.add_changes(changes)
                self._store.append({"kind": "ran", "run": command.id, "note": command.note})

    def _carried_out(self, outcome: Outcome, operation: str, of: str = "") -> tuple[FileResult, ...]:
        ready, done = [], []
        self._store.hold(file.plan.target for file in outcome.files)
        for file in outcome.files:
            if file.plan.action in ("restore", "remove"):
                try:
                    self._keep_present(file.plan)
                except disk.Blocked as error:
                    done.append(_blocked(file, error))
                else:
                    ready.append(file)
            else:
                done.append(file)
        ready.sort(key=lambda file: file.plan.action != "remove")  # they make way for others
        begin = {"kind": "undo", "operation": operation, "turns": list(outcome.turns), "of": of}
        announced = [dump_change(_announced(file.plan, operation)) for file in ready]
        self._store.append(begin, *announced)
        for file in done:
            if file.plan.goes:
                _remove_folders(file.plan.folders)  # which an undo that was broken off had not come to
        for file in ready:
            try:
                self._carry_out(file.plan, _temporary(operation))
                done.append(file)
            except disk.Blocked as error:
                done.append(_blocked(file, error))
        return tuple(sorted(done, key=lambda file: (file.plan.by_command, file.plan.path)))

    def _keep_present(self, plan: FilePlan) -> None:
        """Keep what the file holds now. Raises `Blocked` when that cannot be."""
        if plan.now.kind != "file" or plan.now.same(plan.target):
            return
        now, raw = disk.look(plan.path)
        if not now.same(plan.now):
            raise disk.Blocked("it changed at this very moment")
        self._store.keep(raw, durable=not plan.by_command)

    def _carry_out(self, plan: FilePlan, temporary: str) -> None:
        missing = disk.missing_folders(Path(plan.path))
        try:
            self._make_it_so(plan, temporary)
        except disk.Blocked:
            _remove_folders(missing)
            raise

    def _make_it_so(self, plan: FilePlan, temporary: str) -> None:
        target = plan.target
        if target == ABSENT:
            disk.remove(plan.path, plan.now)
            _remove_folders(plan.folders)
        elif target.kind == "link":
            disk.put_link(plan.path, target.target, plan.now, temporary)
        elif plan.now.same(target):
            disk.set_mode(plan.path, target.mode, plan.now)
        else:
            raw = self._content(target)
            if raw is None:
                raise disk.Blocked("its content is not kept any more")
            disk.put_file(plan.path, raw, target.mode, plan.now, temporary, target.shared)


def _temporary(operation: str) -> str:
    return f".letta-{operation}.tmp"


def _remove_folders(folders: Sequence[str]) -> None:
    """Remove those that are empty; the innermost is the last."""
    for folder in reversed(folders):
        disk.remove_folder(folder)


def _promised(plan: FilePlan) -> Result:
    match plan.action:
        case "restore":
            return "restored"
        case "remove":
            return "removed"
        case "nothing":
            return "unchanged"
        case "leave":
            return "left"


def _blocked(file: FileResult, error: disk.Blocked) -> FileResult:
    return FileResult(replace(file.plan, action="leave", why="blocked", detail=str(error)), "left")


def _announced(plan: FilePlan, operation: str) -> Change:
    folders = disk.missing_folders(Path(plan.path))
    return Change(0, plan.turn, UNDO, plan.path, plan.now, plan.target, folders, operation=operation)


def _doubt(command: Command, path: Path, before: State, after: State) -> Change:
    return Change(
        0,
        command.turn,
        COMMAND,
        str(path),
        before,
        after,
        command=command.command,
        unsure=True,
        since=command.number,
    )
