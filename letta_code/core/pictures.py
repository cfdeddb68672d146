"""The size of a picture, read from the first bytes of its file. Nothing is decoded."""

from __future__ import annotations

import base64
import binascii
import struct

_LOOKED_AT = 512 * 1024  # characters of base64; a JPEG's size may stand behind embedded previews


def pixel_size(data: str) -> tuple[int, int] | None:
    """Width and height of the PNG, JPEG, GIF or WebP file that `data` holds in base64; None when they
    cannot be told."""
    start = data[:_LOOKED_AT]
    try:
        raw = base64.b64decode(start[: len(start) // 4 * 4])
        size = _size(raw)
    except (binascii.Error, ValueError, struct.error, IndexError):
        return None
    return size if size is not None and min(size) > 0 else None


def _size(raw: bytes) -> tuple[int, int] | None:
    if raw[:8] == b"\x89PNG\r\n\x1a\n":
        return struct.unpack(">II", raw[16:24])
    if raw[:4] == b"GIF8":
        return struct.unpack("<HH", raw[6:10])
    if raw[:2] == b"\xff\xd8":
        return _jpeg(raw)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return _webp(raw)
    return None


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    at = 2
    while raw[at] == 0xFF:
        marker = raw[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", raw[at + 2 : at + 4])[0]
    return None


def _webp(raw: bytes) -> tuple[int, int] | None:
    kind = raw[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", raw[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None
