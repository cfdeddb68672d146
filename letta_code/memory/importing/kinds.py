"""What a source is, recognised by what it holds, and where its files go in memory.

Project rules go to that project's folder; what holds everywhere goes to `system/` while it is short, so that
the prompt stays small, else to `reference/`. Which of it is new is decided in `plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from letta_code.errors import UsageError
from letta_code.memory.exporting import find_marker, is_marker_name
from letta_code.memory.importing.rules_files import (
    RULES,
    USER_FOLDERS,
    add_includes,
    gather_rules,
    rule_target,
)
from letta_code.memory.importing.sources import (
    Gathered,
    Skipped,
    is_archive,
    is_bundle,
    read_archive,
    read_file,
    read_folder,
)

Kind = Literal["export", "history", "letta", "claude-memory", "rules", "markdown"]

PROMPT_LIMIT = 4_000
"""Characters that rules for all projects may have to be put into the prompt."""

_TEXT = (".md", ".markdown", ".mdc", ".txt")


@dataclass(frozen=True, slots=True)
class Source:
    """What is imported. `root` is its folder (of a file, the folder it is seen from), `only` the path of
    the one file that is meant ("" for all); `user`: its rules hold in every project. `files` are those of an
    archive, or of a history's last commit."""

    path: Path
    kind: Kind
    root: Path
    only: str = ""
    user: bool = False
    files: Gathered | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One file to import. `source` is its path in the source; `exact`: its bytes are not to be changed;
    `prefix` begins a description that has to be made up; `note` is for the person."""

    source: str
    target: str
    data: bytes
    exact: bool = False
    foreign: bool = True
    prefix: str = ""
    note: str = ""


def recognise(path: Path, home: Path, kind: Kind | None = None) -> Source:
    """What `path` (absolute) is; `kind` decides when it is given.

    Raises:
        UsageError: it is not there, or nothing that can be imported.
    """
    if not path.exists():
        raise UsageError(f"no such file or folder: {path}")
    if is_bundle(path) or _is_repository(path):
        return Source(path, "history", path.parent)
    if path.is_dir():
        return _folder(path, home, kind)
    if is_archive(path):
        files = read_archive(path)
        found = kind or _kind_of(_among(files.files), path, files.files)
        return Source(path, found, path, files=files)
    return _single(path, home, kind)


def items_of(source: Source, project: str, into: str, name: str) -> tuple[list[Item], list[Skipped]]:
    """The files of a source and where they go; and those that are left out. `project` is the memory folder
    of the source's project ("" or with a final slash), `into` the folder the person named ("" or so),
    `name` what the source is called."""
    gathered = source.files or _gathered(source)
    if source.only:
        gathered.files = {
            p: d for p, d in gathered.files.items() if p == source.only or source.kind == "rules"
        }
    items = list(_placed(source, gathered, project, into, name))
    return items, gathered.skipped


def _placed(source: Source, gathered: Gathered, project: str, into: str, name: str) -> Iterator[Item]:
    match source.kind:
        case "export" | "history":
            yield from _exact(gathered, into)
        case "letta":
            yield from _letta(gathered, into)
        case "rules":
            yield from _without_copies(
                _rules(gathered, source, into or ("" if source.user else project)), gathered
            )
        case "claude-memory":
            yield from _below(gathered, into or f"{project or f'projects/{name}/'}claude-memory/")
        case "markdown":
            yield from _below(gathered, into or ("reference/" if source.only else f"reference/{name}/"))


# Recognising ---------------------------------------------------------------------------------------


def _is_repository(path: Path) -> bool:
    return (
        path.is_dir()
        and (path / "HEAD").is_file()
        and (path / "objects").is_dir()
        and (path / "refs").is_dir()
    )


def _folder(path: Path, home: Path, kind: Kind | None) -> Source:
    user = path.parent == home and path.name in USER_FOLDERS
    inner = path / "memory"
    if kind is None and inner.is_dir() and not any((path / name).exists() for name in (*RULES, "system")):
        found = _kind_of(lambda name: (inner / name).exists(), inner, _markers(inner))
        if found in ("letta", "claude-memory"):
            return Source(path, found, inner)
    found = kind or _kind_of(lambda name: (path / name).exists(), path, _markers(path), user)
    return Source(path, found, path, user=user)


def _markers(folder: Path) -> Mapping[str, bytes]:
    gathered = Gathered()
    for file in folder.iterdir():
        if is_marker_name(file.name):
            read_file(folder, file.name, gathered)
    return gathered.files


def _among(files: Mapping[str, bytes]) -> Callable[[str], bool]:
    return lambda name: any(path == name or path.startswith(f"{name}/") for path in files)


def _kind_of(
    has: Callable[[str], bool], path: Path, markers: Mapping[str, bytes], user: bool = False
) -> Kind:
    if find_marker({name: data for name, data in markers.items() if is_marker_name(name)}) is not None:
        return "export"
    letta = ".letta" in path.parts or "memfs" in path.parts or has(".git/hooks/letta-memory-constraints.cjs")
    if has("system") and (letta or has(".git") or has("system/persona.md") or has("system/human.md")):
        return "letta"
    if has("MEMORY.md"):
        return "letta" if letta or has("persona.md") or has("human.md") else "claude-memory"
    if user or any(has(name) for name in RULES) or has(".cursor/rules") or has(".claude/rules"):
        return "rules"
    return "letta" if letta else "markdown"


def _single(path: Path, home: Path, kind: Kind | None) -> Source:
    parts = path.parts
    for depth in range(1, min(len(parts), 8)):
        inside = "/".join(parts[-depth:])
        root = Path(*parts[:-depth])
        if kind in (None, "rules") and not inside.startswith("rules/") and rule_target(inside) is not None:
            if root.parent == home and USER_FOLDERS.get(root.name) == inside:
                return Source(path, "rules", root, inside, user=True)
            if not (inside == "CLAUDE.md" and root.name == ".claude"):
                return Source(path, "rules", root, inside)
    if path.suffix.lower() in _TEXT or kind is not None:
        return Source(path, kind or "markdown", path.parent, path.name)
    raise UsageError(
        f"{path} is nothing that can be imported",
        "a folder, an archive (.tar.gz, .zip), a bundle, or a Markdown file; --as markdown for other text",
    )


# Placing -------------------------------------------------------------------------------------------


def _gathered(source: Source) -> Gathered:
    if source.kind == "rules" and not source.only:
        return gather_rules(source.root, source.user)
    if source.only:
        gathered = Gathered()
        read_file(source.root, source.only, gathered)
        if source.kind == "rules":
            add_includes(source.root, gathered)
        return gathered
    return read_folder(source.root, _WANTED[source.kind])


def _all_but_git(path: str) -> str | None:
    return "" if path in (".git/", ".git") else None


def _markdown_alone(path: str) -> str | None:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if name.startswith("."):
        return "" if name in (".git", ".DS_Store") else "is hidden"
    return (
        None
        if path.endswith("/") or path.lower().endswith((".md", ".markdown", ".mdc"))
        else "is no Markdown file"
    )


_WANTED: Mapping[Kind, Callable[[str], str | None]] = {
    "export": _all_but_git,
    "letta": _all_but_git,
    "claude-memory": _markdown_alone,
    "markdown": _markdown_alone,
}


def _exact(gathered: Gathered, into: str) -> Iterator[Item]:
    marker = find_marker({name: data for name, data in gathered.files.items() if is_marker_name(name)})
    for path, data in gathered.files.items():
        if marker is None or path != marker.name:
            yield Item(path, into + path, data, exact=True, foreign=False)


def _letta(gathered: Gathered, into: str) -> Iterator[Item]:
    """Letta Code's own layout is ours; its newer one has the prompt's files at the top."""
    newer = not any(path.startswith("system/") for path in gathered.files)
    for path, data in gathered.files.items():
        if path.startswith(".letta/") or ("/" not in path and path.startswith(".")):
            gathered.skip(path, "is a setting of Letta's")
            continue
        target, note = path, ""
        if newer and "/" not in path and path.endswith(".md"):
            if path == "MEMORY.md":
                target, note = "reference/MEMORY.md", "an index; memory's own tree is in the prompt already"
            else:
                target, note = f"system/{path}", "was in the prompt there too"
        yield Item(path, into + target, data, foreign=False, note=note)


def _rules(gathered: Gathered, source: Source, folder: str) -> Iterator[Item]:
    for path, data in gathered.files.items():
        target = rule_target(path) or _markdown_name(path)
        item = Item(path, target, data, prefix=f"Rules of {path}")
        if folder:
            yield replace(item, target=folder + target)
            continue
        whose = f"{source.root.name.lstrip('.')}-" if target in USER_FOLDERS.values() and source.user else ""
        short = len(data.decode("utf-8", "replace")) <= PROMPT_LIMIT
        where = "system/imported/" if short else "reference/imported/"
        note = "holds everywhere: in the prompt" if short else "holds everywhere, but too long for the prompt"
        yield replace(item, target=where + whose + target, note=note)


def _below(gathered: Gathered, folder: str) -> Iterator[Item]:
    for path, data in gathered.files.items():
        yield Item(path, folder + _markdown_name(path), data)


def _markdown_name(path: str) -> str:
    if path.endswith(".md"):
        return path
    stem, dot, suffix = path.rpartition(".")
    return (stem if dot and f".{suffix.lower()}" in _TEXT else path) + ".md"


def _without_copies(items: Iterator[Item], gathered: Gathered) -> Iterator[Item]:
    """Rules files are often links to each other: one of them is enough."""
    seen: dict[bytes, str] = {}
    for item in items:
        first = seen.setdefault(item.data, item.source)
        if first != item.source:
            gathered.skip(item.source, f"has the same text as {first}")
        else:
            yield item
