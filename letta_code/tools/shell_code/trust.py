"""Whether a syntax tree of a shell command can be believed.

The grammar is lenient where bash is not: it takes `]#` for the start of a comment, `"$ $(x)"` for text, and
leaves text of here-documents out of the tree. Each piece of the source is therefore checked against the few
ways in which both read it alike; anything else is not believed. Found by running what passed in bash.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_DOLLAR = r"\$(?![({\[\w'\"@*#?!$-])"  # one that expands nothing
_WORD = re.compile(rf"(?:[^\s\\'\"`;|&()<>$]|\\.|{_DOLLAR})*", re.DOTALL)
_QUOTED = re.compile(rf"(?:[^\\\"`$]|\\.|{_DOLLAR})*", re.DOTALL)
_HERE = re.compile(r"(?:[^\\`$]|\\[^\n]|\$(?![({\[\w@*#?!$-]))*")
_LEAVES = {
    "word": _WORD,
    "number": _WORD,
    "test_operator": _WORD,
    "extglob_pattern": re.compile(r"[^\s\\'\"`;&<>$()]*"),
    "regex": re.compile(rf"(?:[^\s'\"`;&<>\\$]|{_DOLLAR})*"),
    "string_content": _QUOTED,
    "heredoc_content": _HERE,
    "raw_string": re.compile(r"'[^']*'"),
    "ansi_c_string": re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL),
    "variable_name": re.compile(r"[A-Za-z_]\w*|\d", re.ASCII),
    "special_variable_name": re.compile(r"[*@?!#$0_-]"),
    "file_descriptor": re.compile(r"\d+"),
    "comment": re.compile(r"#[^\n]*"),
    "heredoc_start": re.compile(r"(['\"]?)[A-Za-z_]\w*\1|\\[A-Za-z_]\w*", re.ASCII),
    "heredoc_end": re.compile(r"\t*[A-Za-z_]\w*\n?", re.ASCII),
    "heredoc_body": re.compile(r".*", re.DOTALL),
}
_GAP = re.compile(r"(?:[ \t\n]|\\\n)*")
_GAP_IN_A_LINE = re.compile(r"(?:[ \t]|\\\n)*")
_ONE_LINE = frozenset(
    {"command", "declaration_command", "unset_command", "file_redirect", "variable_assignment", "list"}
)
_NO_GAP = frozenset(
    {"concatenation", "simple_expansion", "expansion", "translated_string", "ansi_c_string", "command_name"}
)


def odd_characters(command: str) -> bool:
    """Whether there are characters that a person does not see, or that programs split words at and bash
    does not: controls, format characters (zero-width, right-to-left), blanks beyond ASCII."""
    if command.isascii():
        return any((char < " " and char not in "\t\n") or char == "\x7f" for char in command)
    return any(
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs") and char not in " \t\n"
        for char in command
    )


def doubt(root: Node, source: bytes) -> str:
    """Why the tree cannot be believed; empty when it can."""
    if root.has_error:
        return "its syntax is not understood"
    pending = [root]
    documents: list[Node] = []
    while pending:
        node = pending.pop()
        if node.type == "heredoc_redirect":
            documents.append(node)
        if not node.children:
            if not _leaf_believed(node, source):
                return f"`{_text(source, node.start_byte, node.end_byte)[:40]}` cannot be checked"
            continue
        if node.type == "command_substitution" and not _backticks_believed(node, source):
            return "what stands between backticks cannot be checked"
        if node.type == "string" and any(child.type == "ansi_c_string" for child in node.children):
            return "its quoting is not understood"
        if (gap := _bad_gap(node, source)) is not None:
            return f"`{gap[:40]}` cannot be checked"
        pending.extend(node.children)
    if gap := _text(source, 0, root.start_byte).strip(" \t\n"):
        return f"`{gap[:40]}` cannot be checked"
    return "" if _documents_believed(documents, source) else "its here-document is not understood"


def _text(source: bytes, start: int, end: int) -> str:
    return source[start:end].decode("utf-8", "replace")


def _leaf_believed(node: Node, source: bytes) -> bool:
    text = _text(source, node.start_byte, node.end_byte)
    if text.endswith("$") and _dollar_goes_on(node, source):
        return False
    if node.type == "comment":
        before = source[max(node.start_byte - 2, 0) : node.start_byte]
        if not re.fullmatch(rb"|[\s\S]?[ \t\n;&|]", before) or before.startswith(b"\\"):
            return False
    shape = _LEAVES.get(node.type)
    if shape is not None:
        return shape.fullmatch(text) is not None
    if node.is_named:
        return not text.strip()
    return text == node.type or not text.strip() or text.strip() == node.type.strip()


def _dollar_goes_on(node: Node, source: bytes) -> bool:
    """Whether a dollar at the end of this text expands what the grammar took for another."""
    around = "" if node.parent is None else node.parent.type
    if around == "simple_expansion":
        return False
    quotes = b"" if around == "string" else b"'\""
    behind = source[node.end_byte : node.end_byte + 1]
    return bool(re.match(rb"[({\[\w@*#?!$" + quotes + rb"-]", behind))


def _backticks_believed(node: Node, source: bytes) -> bool:
    text = source[node.start_byte : node.end_byte]
    return not text.startswith(b"`") or not re.search(rb"[\\`#'\"]", text[1:-1])


def _bad_gap(node: Node, source: bytes) -> str | None:
    """Source between the children of `node` that is more than blanks."""
    allowed = (
        _GAP_IN_A_LINE
        if node.type in _ONE_LINE or source[node.start_byte : node.start_byte + 1] == b"["
        else _GAP
    )
    if node.type == "list" or source[node.start_byte : node.start_byte + 2] == b"[[":
        allowed = _GAP
    body = node.type == "heredoc_body"
    end = node.start_byte
    for child in node.children:
        gap = _text(source, end, child.start_byte)
        if body:
            if not _HERE.fullmatch(gap):
                return gap
        elif gap and (node.type in _NO_GAP or not allowed.fullmatch(gap)):
            return gap
        elif gap and gap.strip("\\\n") == "" and "\\" in gap:
            return gap  # a word that goes on in the next line
        end = child.end_byte
    rest = _text(source, end, node.end_byte)
    if body:
        return None if _HERE.fullmatch(rest) else rest
    return rest if rest.strip(" \t\n") else None


def _documents_believed(documents: list[Node], source: bytes) -> bool:
    """Whether each here-document begins and ends where bash says, and there is but one in a line."""
    lines = set()
    for document in documents:
        parts = {child.type: child for child in document.children}
        start, body, end = map(parts.get, ("heredoc_start", "heredoc_body", "heredoc_end"))
        newline = source.find(b"\n", document.start_byte)
        if start is None or end is None or newline < 0 or newline in lines:
            return False
        lines.add(newline)
        inside = ("heredoc_body", "heredoc_end")
        if any(child.end_byte > newline and child.type not in inside for child in document.children):
            return False
        word = source[start.start_byte : start.end_byte]
        at = _end_of_document(source, newline + 1, word, "<<-" in parts)
        ending = source[end.start_byte : end.end_byte]
        if end.start_byte + len(ending) - len(ending.lstrip()) != at:
            return False
        if body is not None and (body.start_byte <= newline or body.end_byte > at):
            return False
        expands = word[:1] not in b"'\"\\" and (body is None or not body.children)
        if expands and not _HERE.fullmatch(_text(source, newline + 1, at)):
            return False
    return True


def _end_of_document(source: bytes, at: int, word: bytes, tabs: bool) -> int:
    """Where the word that ends the here-document stands; -1 when that is not sure."""
    name = word.strip(b"'\"\\")
    for line in source[at:].split(b"\n"):
        shown = line.lstrip(b"\t") if tabs else line
        if shown == name:
            return at + len(line) - len(shown)
        if line.lstrip().startswith(name) or (word == name and line.endswith(b"\\")):
            return -1
        at += len(line) + 1
    return -1
