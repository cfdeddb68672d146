"""Glob patterns: which relative paths a pattern names. No I/O.

`*` and `?` stop at `/`, `**` crosses it, `[…]` and `{a,b}` as in ripgrep. A pattern without `/` is
matched against the file name, at any depth.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

from letta_code.errors import ToolError

_SPECIAL = re.compile(r"[*?\[{\\]")
_MAX_ALTERNATIVES = 200


def is_literal(text: str) -> bool:
    """Whether `text` has no wildcard."""
    return _SPECIAL.search(text) is None


def split_prefix(pattern: str) -> tuple[str, str]:
    """The leading folders of `pattern` that have no wildcard, and the rest: ("src/a", "**/*.py")."""
    parts = pattern.split("/")
    count = 0
    while count < len(parts) - 1 and is_literal(parts[count]):
        count += 1
    prefix = "/".join(parts[:count])
    return (prefix or ("/" if count else "")), "/".join(parts[count:])


@lru_cache(64)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A test of relative paths (`/` between parts).

    Raises:
        ToolError: the pattern is not a glob.
    """
    pattern = pattern.removeprefix("./")
    anywhere = "/" not in pattern
    try:
        expression = re.compile(
            "|".join(f"(?:{_translate(one)})" for one in _alternatives(pattern)), re.DOTALL
        )
    except re.error as error:
        raise ToolError(f"not a valid glob pattern: {pattern!r} ({error})") from error
    if anywhere:
        return lambda path: expression.fullmatch(path.rsplit("/", 1)[-1]) is not None
    return lambda path: expression.fullmatch(path) is not None


def _alternatives(pattern: str) -> list[str]:
    """`a{b,c}` → ab, ac; nested too. Braces that do not pair are literal."""
    depth, start = 0, -1
    commas: list[int] = []
    for index, character in enumerate(pattern):
        if character == "{":
            if depth == 0:
                start, commas = index, []
            depth += 1
        elif character == "," and depth == 1:
            commas.append(index)
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                cuts = [start, *commas, index]
                middles = [pattern[a + 1 : b] for a, b in pairwise(cuts)]
                found = [
                    pattern[:start] + middle + tail
                    for tail in _alternatives(pattern[index + 1 :])
                    for one in middles
                    for middle in _alternatives(one)
                ]
                if len(found) > _MAX_ALTERNATIVES:
                    raise ToolError("the glob pattern has too many alternatives in braces")
                return found
    return [pattern]


def _translate(pattern: str) -> str:
    result, index = "", 0
    while index < len(pattern):
        if pattern.startswith("**/", index) and (index == 0 or pattern[index - 1] == "/"):
            result, index = result + "(?:[^/]+/)*", index + 3
        elif pattern.startswith("**", index):
            result, index = result + ".*", index + 2
        elif pattern[index] == "*":
            result, index = result + "[^/]*", index + 1
        elif pattern[index] == "?":
            result, index = result + "[^/]", index + 1
        elif pattern[index] == "[" and (end := pattern.find("]", index + 2)) > 0:
            body = pattern[index + 1 : end]
            negated = "^" if body[0] in "!^" else ""
            inner = re.sub(r"([\\\[&~|])", r"\\\1", body[1:] if negated else body)
            result, index = result + f"(?!/)[{negated}{inner}]", end + 1
        elif pattern[index] == "\\" and index + 1 < len(pattern):
            result, index = result + re.escape(pattern[index + 1]), index + 2
        else:
            result, index = result + re.escape(pattern[index]), index + 1
    return result
