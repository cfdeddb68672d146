"""The text that a foreign file becomes: front matter with a description and where it came from, added where
it is missing. What is there is kept, unknown keys and line ends too. Pure.
"""

from __future__ import annotations

import json
import re

from letta_code.core.text import one_line
from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import Block, decoded, new_block, parse_block

ORIGIN = "imported_from"
"""The front matter key that says which file a memory was made from."""

_DESCRIPTION = 160  # characters
_OPENING = re.compile(r"\ufeff?---[ \t]*\r?\n")
_LOOSE = re.compile(r"^(description|globs):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_HEADER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_MARKS = "#>*-+=`_~ \t\ufeff"


def as_memory(target: str, data: bytes, origin: str, prefix: str = "") -> bytes:
    """The memory file for foreign `data`. `origin` is the path that is noted; `prefix` begins a description
    that has to be made up.

    Raises:
        MemoryEditError: it is not UTF-8 text.
    """
    text = decoded(target, data)
    try:
        block = parse_block(target, data)
        if not block.description:
            block = parse_block(target, block.with_description(_described(block, target, prefix)))
    except MemoryEditError:
        return _wrapped(target, text, origin, prefix)
    return _with_origin(block, origin)


def with_description(target: str, data: bytes) -> bytes:
    """A memory file of another program as it is; a description is added where there is none.

    Raises:
        MemoryEditError: it is not UTF-8 text, or its front matter cannot be read.
    """
    block = parse_block(target, data)
    return data if block.description else block.with_description(_described(block, target, ""))


def _described(block: Block, target: str, prefix: str) -> str:
    return _words(prefix, _first_line(block.body) or _stem(target))


def _words(prefix: str, text: str) -> str:
    return one_line(f"{prefix}: {text}" if prefix else text, _DESCRIPTION)


def _first_line(body: str) -> str:
    """The first heading near the beginning, else the first line with words."""
    lines = [line for line in body.split("\n", 60)[:60] if any(char.isalnum() for char in line)]
    heading = next((line for line in lines if line.lstrip("\ufeff").startswith("#")), None)
    words = heading or (lines[0] if lines else "")
    return "".join(char for char in words.strip().strip(_MARKS) if char.isprintable())


def _stem(target: str) -> str:
    return target.rsplit("/", 1)[-1].removesuffix(".md")


def _wrapped(target: str, text: str, origin: str, prefix: str) -> bytes:
    """A header of ours before a text whose own header is not YAML, as that of many Cursor rules."""
    header = _HEADER.match(text)
    known = dict(_LOOSE.findall(header[1])) if header is not None else {}
    body = text[header.end() :] if header is not None else text
    words = known.get("description") or _first_line(body) or _stem(target)
    if globs := known.get("globs"):
        words = f"{words} (for files {globs})"
    made = new_block(target, _words(prefix, words), text.removeprefix("\ufeff"))
    return _with_origin(parse_block(target, made), origin)


def _with_origin(block: Block, origin: str) -> bytes:
    if ORIGIN in block.keys:
        return block.text.encode("utf-8")
    opening = _OPENING.match(block.text)
    assert opening is not None
    newline = "\r\n" if opening[0].endswith("\r\n") else "\n"
    line = f"{ORIGIN}: {json.dumps(origin, ensure_ascii=not origin.isprintable())}{newline}"
    text = block.text[: opening.end()] + line + block.text[opening.end() :]
    try:
        same = parse_block(block.path, text.encode("utf-8")).body == block.body
    except MemoryEditError:
        same = False  # front matter in flow style: nothing can be added to it
    return (text if same else block.text).encode("utf-8")
