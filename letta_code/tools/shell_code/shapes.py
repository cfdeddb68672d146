"""Two shapes of shell code that are looked at as a whole: tests, and `cd folder && …`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from letta_code.tools.shell_code.words import Variables, text_of, word

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBER_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_OF_A_TEST = frozenset({"[", "]", "=", "==", "!=", "!"})
"""What else the grammar takes for an operator, bash takes for a redirection or the end of the command."""
_SPLIT_BY_NOBODY = frozenset({"string", "word", "number", "raw_string", "test_operator"})
_CHAINED = frozenset({"command", "redirected_statement", "pipeline", "test_command", "comment", "subshell"})


def odd_test(node: Node, variables: Variables) -> str:
    """Why a test command could do more than test; empty when it cannot.

    `-v` and arithmetic evaluate subscripts, with the commands in them; in `[`, a word that the shell splits
    may bring operators of its own.
    """
    leaves = [text_of(leaf) for leaf in _leaves(node)]
    text = text_of(node)
    if {"-v", "-R", "-o", "-a"} & set(leaves) and not text.startswith("[["):
        return "its test cannot be checked"
    if {"-v", "-R"} & set(re.split(r"[\s()!]+", text)) or (
        re.search(r"['\\\\]", text) and re.search(r"\$\(|`", text)
    ):
        return "its test cannot be checked"
    if text.startswith("[["):
        words = text.split()
        for left, operator, right in zip(words, words[1:], words[2:], strict=False):
            if operator in _NUMBER_TESTS and not (_plain_number(left) and _plain_number(right)):
                return "its arithmetic is only known when it runs"
        return ""
    pending = list(node.children)
    while pending:
        operand = pending.pop()
        if operand.type in ("binary_expression", "unary_expression", "negated_command"):
            pending += operand.children
        elif not operand.is_named and operand.type not in _OF_A_TEST:
            return "its test ends before its bracket"
        elif not operand.is_named or operand.type in _SPLIT_BY_NOBODY or text_of(operand) in ("$#", "$?"):
            continue
        elif variables.of(operand) is None:
            return "its test may become another one when it runs"
    return ""


def _plain_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+|\$[#?]", text.strip("\"'")))


def _leaves(root: Node) -> list[Node]:
    found, pending = [], [root]
    while pending:
        node = pending.pop()
        pending += node.children
        if not node.children:
            found.append(node)
    return found


def entered_first(root: Node) -> str | None:
    """The folder of a leading `cd`, when everything else runs only after it: a single chain with `&&`."""
    parts = [child for child in root.children if child.is_named and child.type != "comment"]
    if len(parts) != 1:
        return None
    node = parts[0]
    while node.type == "list":
        if len(node.children) != 3 or node.children[1].type != "&&":
            return None
        if node.children[2].type not in _CHAINED:
            return None
        node = node.children[0]
    if node is parts[0] or node.type != "command" or len(node.children) != 2:
        return None
    target = word(node.children[1])
    return target if text_of(node.children[0]) == "cd" and target and not target.startswith("-") else None
