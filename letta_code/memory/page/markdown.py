"""Markdown of memory files as HTML that can do nothing: no HTML of theirs, no picture, no link that leaves
the page. A link to another memory file leads to it on the page; of any other the address is shown as text.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

_DEEPER = 3
"""Heading levels above a body's own, on the page."""


class _Renderer(RendererHTML):
    """Renders tokens; `env` has `path`, `anchors` (number by path) and the open links' `ends`."""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A picture as its words and address: nothing is loaded."""
        words = self.renderInlineAsText(tokens[idx].children or [], options, env)
        return f'<span class="inert">{escape(words or "picture")}</span>{_address(tokens[idx], "src")}'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """The beginning of a link inside the page, or of plain words."""
        href = str(tokens[idx].attrGet("href") or "")
        number = _target(href, str(env["path"]), env["anchors"])
        if number is not None:
            env["ends"].append("</a>")
            return f'<a href="#f{number}">'
        said = tokens[idx + 1].content == unquote(href).removeprefix("mailto:")
        env["ends"].append("</span>" + ("" if said else _address(tokens[idx], "href")))
        return '<span class="inert">'

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """What ends the link that is open."""
        return str(env["ends"].pop())

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A table that scrolls by itself where it is too wide."""
        return '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Its end."""
        return "</table></div>\n"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    return parser


_PARSER = _parser()


def formatted(text: str, path: str, anchors: Mapping[str, int]) -> str:
    """HTML of a body; `anchors` are the numbers of the files that links may lead to."""
    tokens = _PARSER.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + _DEEPER)}"
        elif token.type in ("th_open", "td_open"):
            style = str(token.attrs.pop("style", ""))
            if style:
                token.attrs["class"] = style.removeprefix("text-align:")
    env: dict[str, Any] = {"path": path, "anchors": anchors, "ends": []}
    return str(_PARSER.renderer.render(tokens, _PARSER.options, env))


def _target(href: str, path: str, anchors: Mapping[str, int]) -> int | None:
    name = unquote(href).partition("#")[0]
    if not name or "://" in name:
        return None
    for start in (posixpath.dirname(path), ""):
        found = posixpath.normpath(posixpath.join(start, name))
        for one in (found, f"{found}.md"):
            if one in anchors:
                return anchors[one]
    return None


def _address(token: Token, name: str) -> str:
    return f' <span class="address">{escape(unquote(str(token.attrGet(name) or "")))}</span>'
