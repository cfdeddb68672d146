"""Where a model is: an address in its one canonical form, and the key that goes there."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from letta_code.errors import UsageError
from letta_code.models.base import Dialect

# What people paste after the base: the SDK adds it itself.
_ENDINGS = re.compile(
    r"(/chat/completions|/completions|/responses|/messages|/models|/api(/(chat|generate|tags|show|ps))?)/*\Z"
)
_VERSION = re.compile(r"/v1/*\Z")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider's address and key. `key_source` says where the key comes from ("ANTHROPIC_API_KEY",
    "settings", "" for none) and is the only thing about it that may be shown."""

    provider: str
    dialect: Dialect
    base_url: str
    api_key: str | None
    key_source: str = ""

    def __repr__(self) -> str:
        return (
            f"Endpoint({self.provider!r}, {self.dialect!r}, {self.address!r}, key from {self.key_source!r})"
        )

    @property
    def address(self) -> str:
        """The address without credentials, for people."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(urlsplit(self.base_url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address without brackets) is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def base_url(text: str, dialect: Dialect, source: str, default_port: int | None = None) -> str:
    """The canonical base URL for `text` in any usual spelling: without a scheme, with slashes or the path
    of a request at its end, with or without `/v1`. `source` names where it was set, for the message.

    Raises:
        UsageError: no address can be read from it.
    """
    raw = text.strip().strip("'\"").strip()
    hint = "for example http://localhost:11434 or https://api.example.com/v1"
    if not raw or any(char.isspace() for char in raw):
        raise UsageError(f"{source}: {raw!r} is not an address", hint)
    bare = "://" not in raw
    if bare:
        raw = f"http://{'localhost' if raw.startswith(':') else ''}{raw}"
    try:
        parts = urlsplit(raw.split("#", 1)[0])
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"{source}: {_hide(raw)!r} is not an address: {error}", hint) from error
    if parts.scheme.lower() not in ("http", "https") or not host or parts.query:
        raise UsageError(f"{source}: {_hide(raw)!r} is not an http address of a server", hint)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = parts.scheme.lower()
    if bare:
        port = port or default_port
        scheme = "http" if port or _private(host) else "https"
    user = parts.netloc.rpartition("@")[0]
    netloc = (
        (f"{user}@" if user else "") + (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    )
    return f"{scheme}://{netloc}{_path(parts.path, dialect)}"


def _path(path: str, dialect: Dialect) -> str:
    path = _ENDINGS.sub("", path.rstrip("/")).rstrip("/")
    if dialect == "anthropic":
        return _VERSION.sub("", path)
    return path or "/v1"


def _private(host: str) -> bool:
    if is_loopback(host) or "." not in host:
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def _hide(url: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//…@", url)
