"""Memory as the model reads it: a snapshot in, text out. Pure and the same bytes every time.

Bodies are given as they are, except that a `<` is written `&lt;` where it would open one of the tags of the
frame, or close one that is open there. So no body, description or name can end its own element or
pretend to be another (`docs/memory-format.md`). This file is the one place that knows the tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import Block
from letta_code.memory.snapshot import Entry, MemorySnapshot, Problem

VERSION = 2
"""Changes when the same snapshot gives other text, so that cached prompts are made again."""

BODY_LIMIT = 100_000
"""Characters of one body that are rendered; a longer one is cut after a whole line, and says so."""

TREE_LINES, TREE_CHILDREN = 200, 50
"""Lines of the external tree in all, and names shown of one folder."""

REMINDER = (
    "Reminder: a <projection> names the file that holds a part of your memory; "
    "change it with the memory tool. The text here is what is committed."
)

_FRAME = (
    "self", "memory", "projection", "description", "usage", "read_only", "external_projection", "problems",
    "memory_update", "removed", "memory_blocks", "memory_metadata", "available_skills", "system-reminder",
    "project_memory",
)  # fmt: skip
_UPDATE = (
    "Memory changed. The parts below are authoritative over the same parts of earlier memory; "
    "parts that are not named here are as they were."
)


@dataclass(slots=True)
class _Node:
    block: Block | None = None
    below: dict[str, _Node] = field(default_factory=dict)


def render_memory(snapshot: MemorySnapshot) -> str:
    """The memory section of the system prompt; empty when there is nothing to show."""
    blocks = [block for block in snapshot.blocks if not block.hidden]
    inner = _nested(_others(blocks)) + _external(snapshot) + _problems(problems_of(snapshot))
    persona = _persona(blocks)
    if not persona and not inner:
        return ""
    parts = [REMINDER, *persona]
    if inner:
        parts.append("<memory>\n" + "\n".join(inner) + "\n</memory>")
    return "\n\n".join(parts)


def render_update(old: MemorySnapshot, new: MemorySnapshot) -> str:
    """What changed for a model that knows `old`; empty when nothing that it sees did."""
    before = {block.path: block for block in old.blocks if not block.hidden}
    after = {block.path: block for block in new.blocks if not block.hidden}
    changed = [
        block for path, block in after.items() if path not in before or before[path].text != block.text
    ]
    removed = [path for path in before if path not in after]
    inner = _nested(_others(changed))
    if _external(old) != _external(new):
        inner += _external(new) or ["<external_projection>\n(empty)\n</external_projection>"]
    if problems_of(old) != problems_of(new):
        inner += _problems(problems_of(new)) or ["<problems>\n(none)\n</problems>"]
    persona = _persona(changed)
    if not (persona or inner or removed):
        return ""
    parts = [f'<memory_update revision="{new.revision}">\n{_UPDATE}', *persona]
    if inner:
        parts.append("<memory>\n" + "\n".join(inner) + "\n</memory>")
    if removed:
        names = "\n".join(_safe(_path(path), ("memory_update", "removed")) for path in removed)
        parts.append(f"<removed>\n{names}\n</removed>")
    return "\n\n".join(parts) + "\n</memory_update>"


def problems_of(snapshot: MemorySnapshot) -> tuple[Problem, ...]:
    """All that keeps the prompt from showing memory whole, bodies that were cut included."""
    cut = tuple(
        Problem(block.path, f"is cut in the prompt: {BODY_LIMIT:,} of {len(block.body):,} characters at most")
        for block in snapshot.blocks
        if not block.hidden and len(block.body) > BODY_LIMIT
    )
    return snapshot.problems + cut


def external_tree(snapshot: MemorySnapshot) -> str:
    """The part of the memory section that lists files outside of `system/`; empty when there are none."""
    return "\n".join(_external(snapshot))


def unescaped(text: str) -> str:
    """The inverse of the escape that bodies get."""
    return re.sub(r"&(amp;)*lt;", lambda m: "<" if m[0] == "&lt;" else "&" + m[0][5:], text)


def escaped(text: str, *open_tags: str) -> str:
    """`text` so that it opens no tag of the frame and closes none of `open_tags`."""
    return _safe(text, open_tags)


def _persona(blocks: Iterable[Block]) -> list[str]:
    for block in blocks:
        if block.path == "system/persona.md":
            lines = [_projection(block.path), *_body(block, ("self",))]
            return ["<self>\n" + "\n".join(lines) + "\n</self>"]
    return []


def _others(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if block.path != "system/persona.md"]


def _nested(blocks: Iterable[Block]) -> list[str]:
    root = _Node()
    for block in blocks:
        node = root
        for part in block.label.split("/")[1:]:
            node = node.below.setdefault(part, _Node())
        node.block = block
    return [line for name in sorted(root.below) for line in _node(name, root.below[name], ("memory",))]


def _node(name: str, node: _Node, open_tags: tuple[str, ...]) -> list[str]:
    tag = _tag(name)
    inside = (*open_tags, tag)
    lines = [f"<{tag}>"]
    if (block := node.block) is not None:
        lines.append(_projection(block.path))
        if block.description:
            lines.append(f"<description>{_safe(block.description, (*inside, 'description'))}</description>")
        if block.limit is not None:
            lines.append(f"<usage>{len(block.body)}/{block.limit} characters</usage>")
        if block.read_only:
            lines.append("<read_only>true</read_only>")
        lines += _body(block, inside)
    for child in sorted(node.below):
        lines += _node(child, node.below[child], inside)
    return [*lines, f"</{tag}>"]


def _body(block: Block, open_tags: tuple[str, ...]) -> list[str]:
    body = block.body
    note = ""
    if len(body) > BODY_LIMIT:
        kept = body[:BODY_LIMIT]
        body = kept[: kept.rfind("\n") + 1] or kept
        note = f"[cut here: {len(body):,} of {len(block.body):,} characters; the file has the rest]"
    shown = _safe(body.rstrip("\r\n"), (*open_tags, "memory_update"))
    return [line for line in (shown, note) if line]


def _projection(path: str) -> str:
    return f"<projection>$MEMORY_DIR/{_safe(_path(path), ('projection',))}</projection>"


def _safe(text: str, open_tags: Sequence[str]) -> str:
    if "<" not in text and "&" not in text:
        return text
    return _pattern(tuple(open_tags)).sub(lambda m: "&lt;" if m[0] == "<" else "&amp;", text)


@lru_cache(maxsize=1024)
def _pattern(open_tags: tuple[str, ...]) -> re.Pattern[str]:
    opening = "|".join(map(re.escape, _FRAME))
    closing = "|".join(map(re.escape, dict.fromkeys(open_tags)))
    # `&lt;` that stands in the text is told from ours by `&amp;lt;`.
    return re.compile(
        rf"<(?=\s*(?:{opening})(?![\w.-]))|<(?=\s*/\s*(?:{closing})(?![\w.-]))|&(?=(?:amp;)*lt;)",
        re.IGNORECASE,
    )


def _tag(name: str) -> str:
    tag = re.sub(r"[^\w.-]", "_", name)
    if not (tag[0].isalpha() or tag[0] == "_"):
        tag = "_" + tag
    return tag + "_" if tag.casefold() in _FRAME else tag


def _path(name: str) -> str:
    """A file's name on one line, told from every other name."""
    return _shown(name.replace("\\", "\\\\"))


def _shown(text: str) -> str:
    """Text on one line, whatever characters it has."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _problems(problems: Iterable[Problem]) -> list[str]:
    lines = [
        _safe(
            f"{_path(item.path)}: {' '.join(_shown(item.message).split())}",
            ("memory", "problems", "memory_update"),
        )
        for item in problems
    ]
    return (
        ["<problems>\nThese memory files could not be shown whole:\n" + "\n".join(lines) + "\n</problems>"]
        if lines
        else []
    )


def _external(snapshot: MemorySnapshot) -> list[str]:
    chosen = _chosen(snapshot)
    if not chosen[""]:
        return []
    lines = ["<external_projection>", "$MEMORY_DIR/"]
    _tree(snapshot, chosen, "", "", lines)
    return ["\n".join([*lines, "</external_projection>"])]


_Chosen = dict[str, tuple[Entry, ...]]


def _chosen(snapshot: MemorySnapshot) -> _Chosen:
    """The entries of each folder that is opened: breadth first, until the lines are used up."""
    top = _top(snapshot)
    chosen: _Chosen = {"": top}
    queue, left = [("", top)], TREE_LINES - min(len(top), TREE_CHILDREN)
    while queue:
        prefix, entries = queue.pop(0)
        for entry in entries[:TREE_CHILDREN]:
            path = prefix + entry.name
            if entry.kind != "folder":
                continue
            rest = _system_rest(snapshot) if path == "system" else None
            wanted = min(TREE_CHILDREN, len(rest) if rest is not None else snapshot.objects.names(entry.id))
            if wanted <= left:
                left -= wanted
                inside = rest if rest is not None else _ordered(snapshot.objects.folder(entry.id))
                chosen[path + "/"] = inside
                queue.append((path + "/", inside))
    return chosen


def _top(snapshot: MemorySnapshot) -> tuple[Entry, ...]:
    return tuple(
        entry
        for entry in _ordered(snapshot.objects.folder(snapshot.root))
        if not entry.name.startswith(".")
        and entry.name not in ("skills",)
        and (entry.name != "system" or entry.kind != "folder" or _system_rest(snapshot))
    )


def _system_rest(snapshot: MemorySnapshot) -> tuple[Entry, ...]:
    """Files of `system/` itself that are no blocks."""
    system = snapshot.find("system")
    inside = snapshot.objects.folder(system.id) if system is not None and system.kind == "folder" else ()
    return tuple(e for e in inside if e.kind == "file" and not e.name.endswith(".md"))


def _ordered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.kind != "folder", entry.name)))


def _tree(snapshot: MemorySnapshot, chosen: _Chosen, prefix: str, indent: str, lines: list[str]) -> None:
    entries = chosen[prefix]
    shown = entries[:TREE_CHILDREN]
    for number, entry in enumerate(shown):
        last = number == len(entries) - 1
        lines.append(f"{indent}{'└── ' if last else '├── '}{_line(snapshot, chosen, prefix, entry)}")
        if prefix + entry.name + "/" in chosen:
            _tree(snapshot, chosen, prefix + entry.name + "/", indent + ("    " if last else "│   "), lines)
    if len(entries) > len(shown):
        lines.append(f"{indent}└── … {len(entries) - len(shown):,} more")


def _line(snapshot: MemorySnapshot, chosen: _Chosen, prefix: str, entry: Entry) -> str:
    tags = ("memory", "external_projection", "memory_update")
    name = _safe(_path(entry.name), tags)
    if entry.kind == "folder":
        closed = prefix + entry.name + "/" not in chosen
        return f"{name}/ ({snapshot.objects.files_below(entry.id):,} files)" if closed else f"{name}/"
    if entry.kind == "other":
        return f"{name} (a link; not followed)"
    if not entry.name.endswith(".md"):
        return name
    try:
        block = snapshot.objects.block(prefix + entry.name, entry.id)
    except MemoryEditError:
        return f"{name} (front matter unreadable)"
    words = block.summary if len(block.summary) <= 160 else block.summary[:159] + "…"
    return f"{name} — {_safe(_shown(words), tags)}" if words else name
