"""What an import changes: each file's name in memory, whether it is new there, and why one is left out. Pure;
a plan that is made again after the import is empty.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import decoded
from letta_code.memory.importing.kinds import Item
from letta_code.memory.importing.sources import Skipped
from letta_code.memory.importing.texts import ORIGIN, as_memory, with_description
from letta_code.memory.rules import Overrides, check_content, checked_path
from letta_code.memory.secrets import Secret, found, masked

State = Literal["new", "same", "differs", "replaced"]
"""`differs`: memory has another text under that name, which is kept."""

FOREIGN_LIMIT = 2**20
"""Bytes of a file that was no memory before."""

_PART = 200  # bytes of a part of a name
_LISTED = 200  # files in a commit message
_ORIGIN = re.compile(rb"^(\xef\xbb\xbf)?(---[ \t]*\r?\n)" + ORIGIN.encode() + rb": [^\r\n]*\r?\n")


@dataclass(frozen=True, slots=True)
class Planned:
    """One file: its path in the source, its name in memory, what happens, and what to know about it."""

    source: str
    target: str
    state: State
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an import does. `changes` are whole files by name in memory; None deletes one that a new agent
    began with."""

    files: tuple[Planned, ...]
    skipped: tuple[Skipped, ...]
    changes: Mapping[str, bytes | None]

    def count(self, state: State) -> int:
        """How many files are in that state."""
        return sum(1 for one in self.files if one.state == state)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a plan has to know of memory: its files; those a new agent begins with (`seed`); whether it has
    nothing else (`fresh`)."""

    files: Mapping[str, bytes]
    seed: Mapping[str, bytes]
    fresh: bool = False


def make_plan(
    memory: Memory,
    items: Iterable[Item],
    skipped: Iterable[Skipped],
    origin: str,
    overrides: Overrides,
    replace: bool = False,
    whole: bool = False,
) -> Plan:
    """Decide about every file. `origin` is how the source's folder is noted; `replace` takes the source's
    text where memory has another; `whole`: the items are all that a fresh memory shall have."""
    clear = memory.fresh and whole
    names = _Names(() if clear else memory.files)
    planned: list[Planned] = []
    left = list(skipped)
    changes: dict[str, bytes | None] = {}
    for item in sorted(items, key=lambda one: one.source):
        try:
            target = names.give(_checked_name(item))
            data = _content(item, target, origin)
            state = _state(memory, target, data, replace)
            if state in ("new", "replaced"):
                _refuse(target, data, overrides)
                changes[target] = data
        except MemoryEditError as error:
            left.append(Skipped(item.source, masked(error.message)))
            continue
        note = item.note
        if target != item.target:
            note = f"{note}; " if note else ""
            note += "another name, since the first is taken or not possible"
        planned.append(Planned(item.source, target, state, note))
    if clear and planned:
        kept = {one.target for one in planned}
        changes |= {path: None for path in memory.files if path not in kept}
    changes = {path: data for path, data in changes.items() if data is None or memory.files.get(path) != data}
    return Plan(tuple(planned), tuple(_once(left)), changes)


def message_of(plan: Plan, origin: str, kind: str) -> str:
    """The reason of the commit: which file came from where."""
    taken = [one for one in plan.files if plan.changes.get(one.target) is not None]
    lines = [masked(f"{one.target} from {one.source}") for one in taken[:_LISTED]]
    if len(taken) > _LISTED:
        lines.append(f"and {len(taken) - _LISTED:,} more")
    count = f"{len(taken):,} file{'' if len(taken) == 1 else 's'}"
    return f"Import {count} from {masked(origin)} ({kind})\n\n" + "\n".join(lines)


def holds_secrets(secrets: Iterable[Secret]) -> str:
    """Why something is not imported."""
    what = "; ".join(dict.fromkeys(f"{one.kind} {one.masked}" for one in secrets))
    return f"holds what looks like a secret ({what}); --allow-secret takes it all the same"


def _state(memory: Memory, target: str, data: bytes, replace: bool) -> State:
    if target not in memory.files:
        return "new"
    there = memory.files[target]
    if there == data or _ORIGIN.sub(rb"\1\2", there) == _ORIGIN.sub(rb"\1\2", data):
        return "same"
    if there == memory.seed.get(target):
        return "new"
    return "replaced" if replace else "differs"


def _content(item: Item, target: str, origin: str) -> bytes:
    if item.exact:
        return item.data
    if len(item.data) > FOREIGN_LIMIT:
        raise MemoryEditError(f"is larger than {FOREIGN_LIMIT >> 20} MB: no note, and costly to remember")
    if not target.endswith(".md"):
        decoded(target, item.data)
        return item.data
    noted = masked(f"{origin.rstrip('/')}/{_clean(item.source)}")
    if not item.foreign:
        try:
            return with_description(target, item.data)
        except MemoryEditError:
            return as_memory(target, item.data, noted)  # says what is wrong, or makes it readable
    return as_memory(target, item.data, noted, item.prefix)


def _refuse(target: str, data: bytes, overrides: Overrides) -> None:
    if "secret" not in overrides:
        secrets = found(f"{target}\n{data.decode('utf-8', 'replace')}")
        if secrets:
            raise MemoryEditError(holds_secrets(secrets))
    check_content(target, data, overrides)


def _checked_name(item: Item) -> str:
    if item.exact:
        return checked_path(item.target)
    parts = [_possible(part) for part in _clean(item.target).split("/")]
    return checked_path("/".join(part for part in parts if part))


def _clean(text: str) -> str:
    """`text` without characters that no name or note should have."""
    return "".join(char if char.isprintable() else "_" for char in text)


def _possible(part: str) -> str:
    if part.casefold().rstrip(". ") in (".git", "git~1") or part in (".", ".."):
        return f"_{part.lstrip('.')}"
    if len(part.encode("utf-8")) <= _PART:
        return part
    stem, dot, suffix = part.rpartition(".")
    ending = f"{dot}{suffix}" if stem and len(suffix) < 10 else ""
    mark = hashlib.sha256(part.encode("utf-8")).hexdigest()[:8]
    return part.encode("utf-8")[: _PART - 30].decode("utf-8", "ignore") + f"-{mark}{ending}"


def _once(skipped: list[Skipped]) -> Iterator[Skipped]:
    """Without repetitions; many files left out of one folder for one reason are one line."""
    counts = Counter((one.path.rpartition("/")[0], one.why) for one in skipped)
    told: set[tuple[str, str]] = set()
    for one in dict.fromkeys(skipped):
        folder = one.path.rpartition("/")[0]
        count = counts[folder, one.why]
        if count <= 10 or one.why.startswith(("refused", "holds")):
            yield one
        elif (folder, one.why) not in told:
            told.add((folder, one.why))
            yield Skipped(f"{folder}/*" if folder else "*", f"{count:,} files: {one.why}")


@dataclass(slots=True)
class _Names:
    """Names given so far, so that no two differ only in case or Unicode form and no file is a folder."""

    start: Iterable[str]
    spelled: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for path in self.start:
            self._note(path)

    def give(self, wanted: str) -> str:
        """`wanted`, or a name like it that is possible here."""
        *parts, last = wanted.split("/")
        prefix = ""
        for part in parts:
            prefix = self._folder(prefix, part) + "/"
        stem, dot, suffix = last.rpartition(".") if "." in last[1:] else (last, "", "")
        for name in _numbered(stem, dot + suffix):
            path = prefix + name
            if (
                path not in self.given
                and self.spelled.get(_folded(path), path) == path
                and path not in self.folders
            ):
                self.given.add(path)
                self._note(path)
                return path
        raise AssertionError("numbers do not end")

    def _folder(self, prefix: str, part: str) -> str:
        for name in _numbered(part, ""):
            there = self.spelled.get(_folded(prefix + name), prefix + name)
            if there in self.folders or (there == prefix + name and _folded(there) not in self.spelled):
                return there
        raise AssertionError("numbers do not end")

    def _note(self, path: str) -> None:
        self.spelled.setdefault(_folded(path), path)
        at = path.find("/")
        while at != -1:
            self.spelled.setdefault(_folded(path[:at]), path[:at])
            self.folders.add(path[:at])
            at = path.find("/", at + 1)


def _numbered(stem: str, suffix: str) -> Iterator[str]:
    yield stem + suffix
    number = 2
    while True:
        yield f"{stem}-{number}{suffix}"
        number += 1


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
