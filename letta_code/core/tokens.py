"""An estimate of how many tokens a text has, for budgets and shares. The provider's usage is the truth.

No tokenizer runs here: one takes a second to load and 80 MB, and each model family has its own Against
o200k_base the estimate of 3,000 characters is wrong by 1 to 6 % on average for prose, Markdown, code, emoji
and base64, by 7 to 15 % for JSON, minified code and logs (mostly too high), and by about 10 % for a paragraph
of Chinese, Japanese, Korean or Russian; there, vocabularies as old as cl100k_base take up to twice as many.
`scripts/bench tokens` measures it (docs/context.md). What corrects it is in `agent.counting`; where somebody
only looks, `agent.vocabulary` may count.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z]+")
_DIGITS = re.compile(r"[0-9]{1,3}")
_SIGNS = re.compile(r"[!-/:-@\[-`{-~]+")
_SPACE = re.compile(r"\n\s*|[ \t]{2,}")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_RUN = re.compile(r"[A-Za-z0-9+/_-]{40,}")
_SWITCH = re.compile(r"[a-z][A-Z0-9]|[A-Z][a-z0-9]|[0-9][A-Za-z]")
_CLASSES = (
    (re.compile(r"[\u3040-\u30ff]"), 0.62),  # kana
    (re.compile(r"[\uac00-\ud7a3\u1100-\u11ff]"), 0.66),  # hangul; the spaces are counted elsewhere
    (re.compile(r"[\u2e80-\u303f\u3100-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"), 0.76),
    (re.compile(r"[\u0080-\u1fff]"), 0.31),  # alphabets
    (re.compile(r"[\u2500-\u257f]"), 0.7),  # lines of tables and trees
    (re.compile(r"[\u2000-\u200b\u2010-\u24ff\u2580-\u25ff]"), 0.9),  # dashes, quotes, arrows
    (
        re.compile(r"[\u200c-\u200f\u2600-\u2e7f\ue000-\uf8ff\ufe00-\ufeff\U0001f000-\U0001faff]"),
        1.6,
    ),  # emoji
)
_OTHER = 2.0

# Fitted by least squares of the relative error over 130 files of prose, code and data.
_PER_WORD, _PER_LONG = 0.949, 0.089
_PER_DIGITS = 1.609
_PER_SIGNS, _PER_SIGN = 0.697, 0.176
_PER_SPACE = 1.476
_PER_ENCODED = 0.69
_COMMON = 6  # letters of a word that cost nothing beyond the word


def estimated_tokens(text: str) -> int:
    """About how many tokens a model counts for `text`. Never fails; 0 only for an empty text."""
    if not text:
        return 0
    text, encoded = _without_encoded(text)
    words = _WORD.findall(text)
    signs = _SIGNS.findall(text)
    tokens = (
        _PER_WORD * len(words)
        + _PER_LONG * sum(len(word) - _COMMON for word in words if len(word) > _COMMON)
        + _PER_DIGITS * len(_DIGITS.findall(text))
        + (_PER_SIGNS - _PER_SIGN) * len(signs)
        + _PER_SIGN * sum(map(len, signs))
        + _PER_SPACE * len(_SPACE.findall(text))
        + _PER_ENCODED * encoded
    )
    if not text.isascii():
        tokens += _foreign("".join(_FOREIGN.findall(text)))
    return max(1, round(tokens))


def _without_encoded(text: str) -> tuple[str, int]:
    """`text` without its runs of base64 and the like, and how many characters these have."""
    gone = 0

    def taken(run: re.Match[str]) -> str:
        nonlocal gone
        if len(_SWITCH.findall(run[0])) * 4 < len(run[0]):
            return run[0]  # a path, a long name
        gone += len(run[0])
        return ""

    return _RUN.sub(taken, text), gone


def _foreign(text: str) -> float:
    tokens = 0.0
    for kind, weight in _CLASSES:
        rest = kind.sub("", text)
        tokens += weight * (len(text) - len(rest))
        text = rest
    return tokens + _OTHER * len(text)
