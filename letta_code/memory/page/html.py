"""A memory's page as one HTML text: nothing in it loads anything, and nothing that memory holds becomes
markup or script. Its shape is `page.html.j2`, its looks `page.css`, its search `page.js`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from letta_code.memory.page.content import Page, PageFile
from letta_code.memory.page.markdown import formatted

_DEPTH = 12
"""Levels of the tree; what is deeper is shown with its path."""

_FEW = 25
"""Entries with which a folder of the tree is still opened."""


@dataclass(slots=True)
class Folder:
    """A folder of the tree: its name, what is in it, and sums of all below."""

    name: str
    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[tuple[str, PageFile]] = field(default_factory=list)
    count: int = 0
    tokens: int = 0
    share: float = 0.0

    @property
    def open(self) -> bool:
        """Whether it is shown opened."""
        return len(self.folders) + len(self.files) <= _FEW


def page_html(page: Page) -> str:
    """The page. It has no address of any other thing in it, and a content policy that allows none."""
    style, script = _resource("page.css"), _resource("page.js")
    shown = tuple(file for file in page.files if not file.left_out)
    anchors = {file.path: file.number for file in shown}
    return _template().render(
        page=page,
        tree=tree(page.files),
        shown=shown,
        anchors=anchors,
        shown_numbers={file.number for file in shown},
        formatted=lambda file: Markup(formatted(file.formatted, file.path, anchors)),
        style=Markup(style),
        script=Markup(script),
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
    )


def tree(paths: Sequence[PageFile]) -> Folder:
    """The files by folder."""
    root = Folder("")
    for file in paths:
        *parents, name = file.path.split("/", _DEPTH)
        node = root
        for part in ("", *parents):
            node = node.folders.setdefault(part, Folder(part)) if part else node
            node.count += 1
            node.tokens += file.tokens
            node.share += file.share
        node.files.append((name, file))
    return root


@lru_cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"size": _size, "count": _count, "percent": _percent, "words": _words}
    return environment.from_string(_resource("page.html.j2"))


def _resource(name: str) -> str:
    return files("letta_code.memory.page").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    """A source expression of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _count(number: int) -> str:
    return f"{number:,}"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def _words(text: str) -> Markup:
    """`text` whose parts in backquotes are code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )
