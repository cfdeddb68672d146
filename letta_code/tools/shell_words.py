"""The words of a shell command: what they are, or, when variables, globs and braces decide that, what
they may be. Knows syntax nodes; runs and expands nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Word = str | None
"""A word's value; None when it is only known at run time."""

Values = tuple[str, ...] | None
"""What a word may be (globs in it stand for file names), when that can be listed."""

_MOST = 64  # values of one word
_ROUNDS = 4  # of following variables that are set from variables
_PLAIN = re.compile(r"[^\s\\'\"$`()<>|&;]*\Z")
_SPLITS = re.compile(r"[^\w./,:@%+=~*?-]")  # what would make other words of an unquoted variable


@cache
def parser() -> Parser:
    """The parser of bash; loaded only when a command is judged."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def text_of(node: Node) -> str:
    """The node's source."""
    return (node.text or b"").decode("utf-8", "replace")


def word(node: Node) -> Word:
    """The value of a word, None when it depends on variables, substitutions, globs or braces."""
    text = text_of(node)
    if node.type in ("word", "number", "extglob_pattern"):
        if text == "{}":
            return text
        if re.search(r"(?<!\\)[*?\[{]", text) or node.children:
            return None
        return re.sub(r"\\(.)", r"\1", text.replace("\\\n", ""))
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        if any(child.is_named and child.type != "string_content" for child in node.children):
            return None
        return re.sub(r'\\([$`"\\])', r"\1", text[1:-1].replace("\\\n", ""))
    if node.type == "concatenation":
        parts = [word(child) for child in node.children]
        if any(part is None for part in parts) or re.search(r"\{[^}]*[,.]", text):
            return None
        return "".join(part or "" for part in parts)
    return text if not node.is_named and node.type in ("[", "]", "[[", "]]") else None


@dataclass(slots=True)
class Variables:
    """The variables that a command sets, wherever in it, and what each may be."""

    values: dict[str, Values] = field(default_factory=dict)

    def learn(self, root: Node) -> None:
        """Take in all assignments and loops below `root`."""
        setters = []
        pending = [root]
        while pending:
            node = pending.pop()
            if node.type in ("variable_assignment", "for_statement"):
                setters.append(node)
            pending.extend(reversed(node.children))
        for _ in range(_ROUNDS):
            before = dict(self.values)
            for node in setters:
                self._set(node)
            if self.values == before:
                return
        self.values.update(dict.fromkeys(self.values, None))

    def _set(self, node: Node) -> None:
        if node.type == "for_statement":
            variable = node.child_by_field_name("variable")
            name = "" if variable is None else text_of(variable)
            given = [self.of(child) for child in node.children_by_field_name("value")]
            found: Values = (
                None if None in given or not given else tuple(v for each in given for v in each or ())
            )
        else:
            name, operator, _ = text_of(node).partition("=")
            value = node.child_by_field_name("value")
            found = ("",) if value is None else self.of(value)
            if not operator or name.endswith("+") or "[" in name:
                name, found = re.sub(r"[\[+].*", "", name), None
        known = self.values.get(name, ())
        if known is None or found is None or any(map(_SPLITS.search, found)):
            self.values[name] = None
        else:
            merged = tuple(dict.fromkeys((*known, *found)))
            self.values[name] = merged if len(merged) <= _MOST else None

    def of(self, node: Node) -> Values:
        """What this word may be."""
        if (static := word(node)) is not None:
            return (static,)
        text = text_of(node)
        if node.type in ("word", "concatenation") and _PLAIN.match(text):
            return braces(text)
        if node.type == "process_substitution":
            return ()  # its commands are judged by themselves
        if node.type in ("simple_expansion", "expansion"):
            name = re.fullmatch(r"\$\{?([A-Za-z_]\w*)\}?", text)
            if name is None:
                return None
            return ("$MEMORY_DIR",) if name[1] == "MEMORY_DIR" else self.values.get(name[1])
        if node.type in ("string", "concatenation"):
            return self._joined(node)
        return None

    def _joined(self, node: Node) -> Values:
        parts: list[tuple[str, ...]] = []
        end = node.start_byte
        for child in node.children:
            if child.start_byte != end:
                return None  # blanks that the grammar leaves out
            end = child.end_byte
            if child.type == "string_content":
                values: Values = (re.sub(r'\\([$`"\\])', r"\1", text_of(child)),)
            else:
                values = ("",) if child.type == '"' else self.of(child)
            if values is None:
                return None
            parts.append(values)
        size = 1
        for part in parts:
            size *= len(part)
        return tuple(map("".join, product(*parts))) if size <= _MOST else None

    def only_inherited(self, node: Node) -> bool:
        """Whether the word depends on nothing but variables that this command does not set."""
        pending = [node]
        while pending:
            inner = pending.pop()
            if inner.type in ("simple_expansion", "expansion"):
                name = re.fullmatch(r"\$\{?([A-Za-z_]\w*)\}?", text_of(inner))
                if name is None or name[1] in self.values:
                    return False
            elif inner.type not in ("string", "concatenation", "word", "raw_string", "string_content", '"'):
                return False
            else:
                pending.extend(inner.children)
        return True


def braces(text: str) -> Values:
    """The words that bash makes of `a{b,c}d`; None for sequences and more than can be listed."""
    pending: list[str] = [text]
    done: list[str] = []
    while pending:
        if len(pending) + len(done) > _MOST:
            return None
        each = pending.pop()
        inner = next((found for found in re.finditer(r"\{([^{}]*)\}", each) if "," in found[1]), None)
        if inner is not None:
            pending += [each[: inner.start()] + part + each[inner.end() :] for part in inner[1].split(",")]
        elif ".." in each and "{" in each:
            return None
        else:
            done.append(each)
    return tuple(done)
