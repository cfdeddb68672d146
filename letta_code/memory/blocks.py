"""A memory block: one Markdown file with YAML front matter, read and rewritten without loss.

The only parser of memory files. It keeps the text as it came (BOM, CRLF, comments, unknown keys, key
order) and rewrites nothing but the value that changes. It reads no disk and no Git; what may be written
where is decided in `memory.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from letta_code.errors import MemoryEditError

_BOM = "\ufeff"
_FENCE = re.compile(r"---[ \t]*(?:\r?\n|\Z)")
_CLOSING = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_HEADER_LIMIT = 65_536
# A header whose lines all look like this means the same to us and to YAML: `key: words`, nothing that
# YAML could take for another type, a quote, a comment or a continuation. Real YAML costs 30 times more.
_SIMPLE = re.compile(r"(?P<key>[a-z_]+): (?P<value>[A-Za-z][\w ,.;()/+-]*[\w.)])\r?\n", re.ASCII)
_NOT_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Block:
    """One memory file.

    `path` is relative to the memory folder, `label` is it without `.md`; `limit` is in characters of
    `body`; `blob` is the Git object id (hex) it was read from, empty when it was not; `text` is the whole
    file and `body_start` the offset of its body (characters). `keys` are the front matter's own keys;
    `repeated` those that it has more than once, of which the last counts.
    """

    path: str
    text: str
    body_start: int = 0
    description: str = ""
    read_only: bool = False
    limit: int | None = None
    hidden: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    blob: str = ""

    @property
    def label(self) -> str:
        """The path without `.md`."""
        return self.path.removesuffix(".md")

    @property
    def body(self) -> str:
        """Everything after the front matter, exactly."""
        return self.text[self.body_start :]

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.strip().split("\n", 1)[0].strip()

    def with_body(self, body: str) -> bytes:
        """The file with another body; the front matter's bytes are kept."""
        return (self.text[: self.body_start] + body).encode("utf-8")

    def with_description(self, description: str) -> bytes:
        """The file with another description; no other byte changes.

        Raises:
            MemoryEditError: the description is empty, or the front matter is written in a way that
                cannot be changed in one place (flow style, anchors).
        """
        words = description.strip()
        if not words:
            raise MemoryEditError(f"{self.path}: the description must not be empty")
        if "description" in self.repeated:
            raise MemoryEditError(
                f"{self.path}: its front matter has the key 'description' twice; delete one of them first"
            )
        text = self._replaced_description(_scalar(words))
        changed = parse_block(self.path, text.encode("utf-8"))
        if (changed.description, changed.body) != (words, self.body) or _others(changed) != _others(self):
            raise self._would_damage()
        return text.encode("utf-8")

    def _would_damage(self) -> MemoryEditError:
        return MemoryEditError(
            f"{self.path}: its front matter is written in a way that a new description would damage",
            "write the front matter as plain `key: value` lines",
        )

    def _replaced_description(self, scalar: str) -> str:
        newline = "\r\n" if "\r\n" in self.text else "\n"
        start = len(_BOM) if self.text.startswith(_BOM) else 0
        opening = _FENCE.match(self.text, start)
        if self.body_start <= start or opening is None:
            header = f"---{newline}description: {scalar}{newline}---{newline}"
            return self.text[:start] + header + self.text[start:]
        if "description" not in self.keys:
            at = opening.end()
            return f"{self.text[:at]}description: {scalar}{newline}{self.text[at:]}"
        header, offset = _header(self.text, opening.end(), self.path), opening.end()
        try:
            # The pure Python loader: its marks count characters. It is stricter than the other about tabs.
            root: Any = yaml.compose(header, Loader=yaml.SafeLoader)
        except (yaml.YAMLError, RecursionError) as error:
            raise self._would_damage() from error
        for key, value in root.value:
            if key.value == "description":
                first, last = offset + value.start_mark.index, offset + value.end_mark.index
                old = self.text[first:last]
                separator = "" if self.text[first - 1] in " \t" else " "
                ending = newline if old.endswith("\n") else ""  # block scalars (`>`, `|`) own their newline
                return self.text[:first] + separator + scalar + ending + self.text[last:]
        raise AssertionError("a parsed key is in the header")


def parse_block(path: str, data: bytes, blob: str = "") -> Block:
    """Read one memory file. A file without front matter is all body.

    A key that is given twice has its last value, as YAML readers have it, and is named in `repeated`.

    Raises:
        MemoryEditError: it is not UTF-8 text, or its front matter is not closed, not valid YAML, not a
            mapping, or a known key has a value of the wrong type. The message says what and where.
    """
    text = decoded(path, data)
    start = len(_BOM) if text.startswith(_BOM) else 0
    opening = _FENCE.match(text, start)
    if opening is None:
        return Block(path, text, start, blob=blob)
    header = _header(text, opening.end(), path)
    closing = _CLOSING.match(text, opening.end() + len(header))
    assert closing is not None
    repeated: tuple[str, ...] = ()
    values = _simple(header)
    if values is None:
        values, repeated = _yaml(header, path)
    return Block(
        path,
        text,
        closing.end(),
        description=_text(values, "description", path),
        read_only=_flag(values, "read_only", path),
        limit=_count(values, "limit", path),
        hidden=_flag(values, "hidden", path),
        metadata=_mapping(values, "metadata", path),
        keys=tuple(values),
        repeated=repeated,
        blob=blob,
    )


def new_block(path: str, description: str, body: str) -> bytes:
    """The bytes of a new memory file.

    Raises:
        MemoryEditError: the description is empty.
    """
    words = description.strip()
    if not words:
        raise MemoryEditError(f"{path}: a new memory file needs a description that says when to read it")
    return f"---\ndescription: {_scalar(words)}\n---\n{body}".encode()


def decoded(path: str, data: bytes) -> str:
    """`data` as text.

    Raises:
        MemoryEditError: it is not UTF-8, or has NUL characters; UTF-16 is named as such.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MemoryEditError(f"{path}: is UTF-16; memory files are UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MemoryEditError(f"{path}: is not UTF-8 (byte {error.start})") from error
    if "\0" in text:
        raise MemoryEditError(f"{path}: holds NUL characters; memory files are text")
    return text


def _header(text: str, start: int, path: str) -> str:
    closing = _CLOSING.search(text, start)
    if closing is None:
        raise MemoryEditError(f"{path}: the front matter is not closed by a line `---`")
    if closing.start() - start > _HEADER_LIMIT:
        raise MemoryEditError(f"{path}: the front matter is longer than {_HEADER_LIMIT:,} characters")
    return text[start : closing.start()]


def _simple(header: str) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    at = 0
    while at < len(header):
        match = _SIMPLE.match(header, at)
        if match is None or match["key"] in values or match["value"].lower() in _NOT_WORDS:
            return None
        values[match["key"]] = match["value"]
        at = match.end()
    return values


def _yaml(header: str, path: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    try:
        loader = _Loader(header)
        try:
            root = loader.get_single_node()
            if root is None:
                return {}, ()
            if not isinstance(root, yaml.MappingNode):
                raise MemoryEditError(f"{path}: the front matter is not `key: value` lines")
            values: dict[str, Any] = {}
            repeated: dict[str, None] = {}
            for key, value in root.value:
                name = str(loader.construct_object(key, deep=True))
                if name in values:
                    repeated[name] = None
                values[name] = loader.construct_object(value, deep=True)
                if name == "description" and isinstance(value, yaml.ScalarNode) and values[name] is not None:
                    values[name] = value.value  # `description: 2026` is words too
            return values, tuple(repeated)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 2})" if error.problem_mark is not None else ""
        raise MemoryEditError(f"{path}: the front matter is not valid YAML: {error.problem}{line}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise MemoryEditError(f"{path}: the front matter is not valid YAML") from error


def _text(values: Mapping[str, Any], key: str, path: str) -> str:
    value = values.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MemoryEditError(f"{path}: `{key}` must be text")
    return value.strip()


def _flag(values: Mapping[str, Any], key: str, path: str) -> bool:
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise MemoryEditError(f"{path}: `{key}` must be true or false")
    return value


def _count(values: Mapping[str, Any], key: str, path: str) -> int | None:
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise MemoryEditError(f"{path}: `{key}` must be a whole number of characters above 0")
    return value


def _mapping(values: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    value = values.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MemoryEditError(f"{path}: `{key}` must be a mapping")
    return value


def _scalar(words: str) -> str:
    """`words` as a YAML value on one line."""
    if _simple(f"description: {words}\n") is not None:
        return words
    quoted = yaml.dump(words, default_style='"', allow_unicode=True, width=2**31)
    return str(quoted).rstrip("\n")


def _others(block: Block) -> tuple[Any, ...]:
    keys = tuple(key for key in block.keys if key != "description")
    return keys, block.read_only, block.limit, block.hidden, block.metadata
