"""What goes wrong between us and a server, as a `ModelError` of the kind that says what to do.

SDK errors are recognised by what they carry (`status_code`, `response`, `body`), so no SDK is imported.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Any

from letta_code.core.text import one_line, well_formed
from letta_code.errors import ModelError, ModelErrorKind
from letta_code.models.endpoint import Endpoint

_OVERFLOW = re.compile(
    r"prompt is too long|context_length_exceeded|exceed_context_size|maximum context length|context window"
    r"|exceeds? the (available )?context|exceed context limit|context length (exceeded|of)"
    r"|too many input tokens|larger than the context|model_context_window_exceeded|input is too long",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient.(quota|balance|funds|credit)|credit balance|billing_", re.IGNORECASE)
_SECRET = re.compile(r"\b(?:sk|pk|ghp|gho)[-_][\w*.-]{6,}|(?<=Bearer )\S+|(?<=//)[^/@\s]+(?=@)")
_STATUS: dict[int, ModelErrorKind] = {
    401: "auth",
    402: "auth",
    403: "auth",
    404: "not_found",
    405: "not_found",
    408: "network",
    409: "overloaded",
    413: "context_overflow",
    425: "overloaded",
    429: "rate_limited",
    501: "invalid_request",
    505: "invalid_request",
}
_Kinds = tuple[tuple[re.Pattern[str], ModelErrorKind], ...]
_LABELS: _Kinds = (
    (re.compile(r"rate_limit", re.IGNORECASE), "rate_limited"),
    (
        re.compile(r"overloaded|server_error|api_error|timeout|unavailable|capacity", re.IGNORECASE),
        "overloaded",
    ),
)
_CODES: _Kinds = (
    *_LABELS,
    (re.compile(r"authentication|permission|api_key", re.IGNORECASE), "auth"),
    (re.compile(r"not_found", re.IGNORECASE), "not_found"),
    (re.compile(r"too_large", re.IGNORECASE), "context_overflow"),
    (re.compile(r"invalid|policy|not_supported|unsupported", re.IGNORECASE), "invalid_request"),
)
_START_HINTS = {
    "ollama": "start it with: ollama serve",
    "lmstudio": "start the local server in LM Studio, or: lms server start",
    "llamacpp": "start it with: llama-server -m MODEL.gguf --jinja",
    "vllm": "start it with: vllm serve MODEL",
}


def from_exception(error: BaseException, endpoint: Endpoint, *, answering: bool) -> ModelError:
    """The `ModelError` for an SDK's or transport's exception. `answering`: the answer had begun."""
    status = getattr(error, "status_code", None)
    response = getattr(error, "response", None)
    if isinstance(status, int) and response is not None:
        return from_status(status, getattr(error, "body", None), response.headers, endpoint)
    if isinstance(getattr(error, "body", None), Mapping):
        return from_event(error.body, endpoint)  # type: ignore[attr-defined]
    silent = any("ReadTimeout" in type(link).__name__ or type(link) is TimeoutError for link in _chain(error))
    if answering:
        return ModelError(
            f"{endpoint.provider}: the answer broke off ({_reason(error, endpoint)})",
            "broken_stream",
            silent=silent,
        )
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in _chain(error)):
        return ModelError(
            f"cannot reach {endpoint.address}: {_reason(error, endpoint)}",
            "untrusted",
            hint="if you trust whoever signed it (a company's proxy), name its certificate: "
            "export SSL_CERT_FILE=FILE",
        )
    hint = _START_HINTS.get(endpoint.provider, "check the address, the network, and the proxy if one is set")
    return ModelError(
        f"cannot reach {endpoint.address}: {_reason(error, endpoint)}",
        "network",
        hint=hint,
        silent=silent,
    )


def from_status(status: int, body: object, headers: Mapping[str, str], endpoint: Endpoint) -> ModelError:
    """The `ModelError` for an HTTP answer that is an error."""
    words, code = _words(body)
    kind, hint = _judged(status, words, code, endpoint)
    if 300 <= status < 400:
        kind = "not_found"
        words = f"the server redirects to {one_line(headers.get('location', 'another address'), 200)}"
        hint = "set that address as the base URL, if you trust it"
    message = f"{endpoint.provider} answered {status}" + (f": {words}" if words else "")
    return ModelError(
        redact(message, endpoint),
        kind,
        hint=hint,
        retry_after=retry_after(headers),
        status=status,
        again={"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower()),
    )


def from_event(body: Mapping[str, Any], endpoint: Endpoint) -> ModelError:
    """The `ModelError` for an error that came inside a stream or a successful answer."""
    words, code = _words(body)
    kind, hint = _judged(_status_in(body), words, code, endpoint)
    message = f"{endpoint.provider}: {words or code or 'the server reported an error'}"
    return ModelError(redact(message, endpoint), kind, hint=hint)


def not_an_answer(page: bytes, endpoint: Endpoint) -> ModelError:
    """The `ModelError` for a web page with status 200 in place of an answer: a network's login page, or a
    wrong address."""
    what = _page(page.decode("utf-8", "replace"))
    return ModelError(
        redact(f"{endpoint.address} answered with {what}, not as a model", endpoint),
        "broken_stream",
        hint="check the base URL, and whether this network wants a login",
    )


def _judged(status: int | None, words: str, code: str, endpoint: Endpoint) -> tuple[ModelErrorKind, str]:
    """Kind and hint for what a server said; `status` is None where it only said it inside a stream."""
    label = f"{code} {words}"
    kind: ModelErrorKind
    if status is not None:
        kind = _STATUS.get(status, "overloaded" if status >= 500 else "invalid_request")
    else:
        # Words of a bad request may well speak of a timeout; they count where no code says anything.
        kind = _named(_CODES, code) or _named(_LABELS, words) or "broken_stream"
    if status in (None, 400, 413, 422, 500) and _OVERFLOW.search(label):
        kind = "context_overflow"
    if status == 402 or (status in (None, 400, 403, 429) and _NO_CREDIT.search(label)):
        return "auth", "the account has no credit left: add some, or use another key"
    return kind, _hint(kind, endpoint)


def _named(kinds: _Kinds, text: str) -> ModelErrorKind | None:
    return next((kind for pattern, kind in kinds if pattern.search(text)), None)


def _status_in(body: Mapping[str, Any]) -> int | None:
    """The HTTP status that an error object carries as its code."""
    inner = body.get("error", body)
    if not isinstance(inner, Mapping):
        return None
    for value in (inner.get("code"), inner.get("status"), inner.get("status_code")):
        text = str(value)
        if text.isdecimal() and len(text) == 3 and text[0] in "45":
            return int(text)
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, or `retry-after` as seconds or HTTP date."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / scale
        except ValueError:
            try:
                date = parsedate_tz(value)
                if date is None:
                    continue
                seconds = mktime_tz(date) - time.time()  # without a zone it is UTC: HTTP knows no other
            except (ValueError, OverflowError):
                continue
        if seconds == seconds and seconds != float("inf"):
            return max(0.0, seconds)
    return None


def redact(text: str, endpoint: Endpoint) -> str:
    """`text` without keys and credentials."""
    if endpoint.api_key and len(endpoint.api_key) >= 4:
        text = text.replace(endpoint.api_key, "…")
    return _SECRET.sub("…", text)


def _hint(kind: ModelErrorKind, endpoint: Endpoint) -> str:
    if kind == "auth":
        name = f"{endpoint.provider.upper()}_API_KEY"
        return f"the key comes from {endpoint.key_source}" if endpoint.key_source else f"set {name}"
    if kind == "context_overflow":
        return "start a new conversation (letta --new, in a chat /new), or use a model with a larger window"
    if kind == "not_found" and endpoint.dialect == "openai-responses":
        return "check the model's name; a server without the Responses API needs --base-url instead"
    if kind == "not_found":
        return "check the model's name and the base URL; `letta models` lists what can be reached"
    return ""


def _words(body: object) -> tuple[str, str]:
    """The sentence and the code in an error body of any provider."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return _page(str(body)), ""
    if isinstance(body, list) and body:
        body = body[0]  # Google's
    if not isinstance(body, Mapping):
        return "", ""
    inner = body.get("error", body)
    if isinstance(inner, str):
        return one_line(well_formed(inner), 300), ""
    if not isinstance(inner, Mapping):
        return "", ""
    words = inner.get("message") or inner.get("detail") or body.get("message") or ""
    codes = dict.fromkeys(str(inner[key]) for key in ("code", "type") if inner.get(key))
    words = words if isinstance(words, str) else json.dumps(words)
    return one_line(well_formed(words), 300), one_line(well_formed(" ".join(codes)), 100)


def _page(text: str) -> str:
    if "<html" in text[:2000].lower() or text.lstrip().startswith("<"):
        title = re.search(r"<title[^>]*>(.*?)</title>", text[:5000], re.IGNORECASE | re.DOTALL)
        return "an HTML page" + (f" ({one_line(title.group(1), 80)})" if title else "")
    return one_line(well_formed(text[:2000]), 300)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _reason(error: BaseException, endpoint: Endpoint) -> str:
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({link.verify_message})"
        if isinstance(link, ssl.SSLError):
            return f"TLS failed ({link.reason or 'no reason given'})"
        if isinstance(link, socket.gaierror):
            return "its name cannot be resolved"
        if isinstance(link, ConnectionRefusedError):
            return "connection refused"
        if isinstance(link, UnicodeDecodeError):
            return "it is not in UTF-8"
    if any("Timeout" in type(link).__name__ for link in chain):
        return "it was silent for too long"
    for link in reversed(chain):
        if isinstance(link, OSError) and link.strerror:
            return link.strerror.lower()
    return redact(one_line(str(error), 200) or type(error).__name__, endpoint)
