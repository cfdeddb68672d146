"""Bytes of a person's text file ⇄ text, so that what is not edited comes back byte for byte.

Knows BOMs, UTF-8 (also with a few broken bytes), UTF-16/32 and the legacy encodings of the world. Does
not touch line endings and does not open files.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from charset_normalizer import from_bytes

from letta_code.errors import ToolError

_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# Only encodings that write every character by itself: then encoding pieces equals encoding the whole.
_MULTI_BYTE = ["gb18030", "big5", "cp932", "euc_jp", "cp949"]
_SINGLE_BYTE = ["cp1252", "latin_1", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"]

_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_GUESS_SAMPLE = 200_000  # bytes; guessing is slow, and decoding checks the rest anyway
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TextFile:
    """A decoded file: `text` without BOM and with its line endings as they are.

    `note` tells the model what was unusual ("" when nothing was). Broken bytes of a UTF-8 file are
    lone surrogates in `text`; show text with `printable`.
    """

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    note: str = ""

    def encode(self, text: str) -> bytes:
        """`text` (kept parts and checked new parts) in this file's encoding, with its BOM."""
        errors = "surrogateescape" if self.encoding == "utf-8" else "strict"
        return self.bom + text.encode(self.encoding, errors)

    def check(self, new: str) -> None:
        """Raise `ToolError` when `new` holds a character that this file's encoding cannot hold."""
        try:
            new.encode(self.encoding)
        except UnicodeEncodeError as error:
            bad = error.object[error.start]
            shown = f"U+{ord(bad):04X}" if _SURROGATES.match(bad) else repr(bad)
            raise ToolError(
                f"the file's encoding is {self.encoding}, which cannot hold {shown}; nothing was changed. "
                "Use other characters, or convert the file to UTF-8 first."
            ) from error


def decode(raw: bytes) -> TextFile:
    """Decode a file's bytes so that `decode(raw).encode(decode(raw).text) == raw`.

    Raises:
        ToolError: it is not text.
    """
    for bom, encoding in _BOMS:
        if raw.startswith(bom):
            return _decode_marked(raw, bom, encoding)
    if b"\0" in raw:
        return _decode_wide(raw)
    try:
        return TextFile(raw.decode("utf-8"))
    except UnicodeDecodeError:
        pass
    text = raw.decode("utf-8", "surrogateescape")
    broken = len(_SURROGATES.findall(text))
    if len(_UTF8_SEQUENCE.findall(raw)) < broken and (legacy := _decode_legacy(raw)) is not None:
        return legacy
    note = f"{broken} byte(s) are not valid UTF-8 and are shown as \ufffd; Edit keeps them as they are"
    return TextFile(text, note=note)


def printable(text: str) -> str:
    """`text` without lone surrogates, which no JSON or terminal takes."""
    return _SURROGATES.sub("\ufffd", text)


def _decode_marked(raw: bytes, bom: bytes, encoding: str) -> TextFile:
    body = raw[len(bom) :]
    if encoding == "utf-8":
        if b"\0" in body:
            raise ToolError("it is a binary file (it contains NUL bytes)")
        text = body.decode("utf-8", "surrogateescape")
        broken = len(_SURROGATES.findall(text))
        note = f"{broken} byte(s) are not valid UTF-8 and are shown as \ufffd" if broken else ""
        return TextFile(text, bom=bom, note=note)
    found = _strictly(body, encoding)
    if found is None or "\0" in found:
        raise ToolError(f"it starts like {encoding.upper()} text but is not: a binary file")
    return TextFile(found, encoding, bom, f"encoding {encoding}; Edit keeps it")


def _decode_wide(raw: bytes) -> TextFile:
    """UTF-16 without a BOM, which has a NUL in every second byte of Latin text; else binary."""
    for encoding, empty, full in (("utf-16-le", 1, 0), ("utf-16-be", 0, 1)):
        halves = raw[empty::2].count(0), raw[full::2].count(0)
        if halves[1] == 0 and halves[0] * 4 >= len(raw):
            text = _strictly(raw, encoding)
            if text is not None and not re.search(r"[\x00-\x08\x0e-\x1a]", text):
                return TextFile(text, encoding, b"", f"encoding guessed: {encoding}; Edit keeps it")
    raise ToolError("it is a binary file (it contains NUL bytes)")


def _decode_legacy(raw: bytes) -> TextFile | None:
    candidates = [name for name in (*_MULTI_BYTE, *_SINGLE_BYTE) if _strictly(raw, name) is not None]
    if not candidates:
        return None
    best = from_bytes(raw[:_GUESS_SAMPLE], cp_isolation=candidates, enable_fallback=False).best()
    encoding = best.encoding if best is not None and best.encoding in candidates else candidates[-1]
    if encoding not in _MULTI_BYTE and _mostly_latin(raw):
        encoding = next((name for name in ("cp1252", "latin_1") if name in candidates), encoding)
    text = _strictly(raw, encoding)
    if text is None:
        return None
    return TextFile(text, encoding, b"", f"not UTF-8; encoding guessed: {encoding}; Edit keeps it")


def _mostly_latin(raw: bytes) -> bool:
    """Few high bytes, each beside ASCII letters: Western text, where a guess is otherwise a lottery."""
    high = sum(1 for byte in raw if byte >= 0x80)
    letters = sum(1 for byte in raw if 0x61 <= (byte | 0x20) <= 0x7A)
    return high * 4 <= letters


def _strictly(raw: bytes, encoding: str) -> str | None:
    """`raw` decoded, or None when that is impossible or would not come back byte for byte."""
    try:
        text = raw.decode(encoding)
        return text if text.encode(encoding) == raw else None
    except UnicodeError:
        return None
