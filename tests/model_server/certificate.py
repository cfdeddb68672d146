"""A self-signed certificate for the loopback address, made when it is needed: no file to expire, no tool to
install. Elliptic-curve signatures (NIST P-256, FIPS 186-4) and the DER of X.509, as little of both as a TLS
server needs; for tests only, nothing here is hardened against anything.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import ssl
import tempfile
from datetime import UTC, datetime, timedelta

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_EC_KEY, _P256, _ECDSA_SHA256 = "2a8648ce3d0201", "2a8648ce3d030107", "2a8648ce3d040302"
_COMMON_NAME, _ALTERNATIVE_NAMES = "550403", "551d11"

Point = tuple[int, int]


def untrusted_context() -> ssl.SSLContext:
    """A TLS server's context with a new key and a certificate for 127.0.0.1 that it signed itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(_pem_pair())
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _pem_pair() -> str:
    private = secrets.randbelow(_N - 1) + 1
    x, y = _times(private, _G)
    public = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
    curve = _der(0xA0, _oid(_P256))
    key = _der(
        0x30, _whole(1), _der(4, private.to_bytes(32, "big")), curve, _der(0xA1, _der(3, b"\0" + public))
    )
    algorithm = _der(0x30, _oid(_ECDSA_SHA256))
    name = _der(0x30, _der(0x31, _der(0x30, _oid(_COMMON_NAME), _der(0x0C, b"scripted model server"))))
    now = datetime.now(UTC)
    validity = _der(0x30, _time(now - timedelta(days=1)), _time(now + timedelta(days=1)))
    holder = _der(0x30, _der(0x30, _oid(_EC_KEY), _oid(_P256)), _der(3, b"\0" + public))
    names = _der(0x30, _der(0x87, bytes([127, 0, 0, 1])))
    extension = _der(0x30, _oid(_ALTERNATIVE_NAMES), _der(4, names))
    signed = _der(
        0x30,
        _der(0xA0, _whole(2)),
        _whole(secrets.randbits(63)),
        algorithm,
        name,
        validity,
        name,
        holder,
        _der(0xA3, _der(0x30, extension)),
    )
    certificate = _der(0x30, signed, algorithm, _der(3, b"\0" + _signature(private, signed)))
    return _pem("EC PRIVATE KEY", key) + _pem("CERTIFICATE", certificate)


def _signature(private: int, data: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(data).digest(), "big")
    once = secrets.randbelow(_N - 1) + 1
    r = _times(once, _G)[0] % _N
    s = pow(once, -1, _N) * (digest + r * private) % _N
    return _der(0x30, _whole(r), _whole(s))


def _times(factor: int, point: Point) -> Point:
    found: Point | None = None
    doubled = point
    while factor:
        if factor & 1:
            found = doubled if found is None else _sum(found, doubled)
        doubled = _sum(doubled, doubled)
        factor >>= 1
    assert found is not None
    return found


def _sum(left: Point, right: Point) -> Point:
    if left == right:
        slope = (3 * left[0] ** 2 - 3) * pow(2 * left[1], -1, _P)
    else:
        slope = (right[1] - left[1]) * pow(right[0] - left[0], -1, _P)
    x = (slope * slope - left[0] - right[0]) % _P
    return x, (slope * (left[0] - x) - left[1]) % _P


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 128 + len(length)]) + length + content


def _whole(number: int) -> bytes:
    return _der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _oid(hexadecimal: str) -> bytes:
    return _der(6, bytes.fromhex(hexadecimal))


def _time(moment: datetime) -> bytes:
    return _der(0x17, moment.strftime("%y%m%d%H%M%SZ").encode())


def _pem(label: str, data: bytes) -> str:
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"
