"""Small rules about text that every layer must share."""

from __future__ import annotations

TRUNCATION_MARK = "…"


def well_formed(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD.

    JSON can carry them ("\\ud800") and file names can decode to them; UTF-8, and so every provider,
    cannot. Applied where text enters: person's input, model output, tool output.
    """
    return text.encode("utf-8", "replace").decode("utf-8") if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def one_line(text: str, limit: int = 100) -> str:
    """`text` as one line of at most `limit` characters, for titles and lists."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + TRUNCATION_MARK
