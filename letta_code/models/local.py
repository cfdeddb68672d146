"""Servers on this machine: which run, what they offer, and the window they really serve.

Plain HTTP to loopback with the standard library: no SDK is loaded and no proxy is asked. Silence or
nonsense means "not known", never an error.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from letta_code.models.endpoint import Endpoint

PROBE_SECONDS = 0.3
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)
_CURES = {
    "ollama": "restart it with OLLAMA_CONTEXT_LENGTH=32768 ollama serve",
    "llamacpp": "restart llama-server with a larger --ctx-size",
    "lmstudio": "load the model in LM Studio with a larger context length",
    "vllm": "restart vllm with a larger --max-model-len",
}


def window_cure(provider: str) -> str:
    """How to make a provider's server serve a larger window."""
    return _CURES.get(provider, "start the server with a larger context length")


def listed_models(endpoint: Endpoint) -> tuple[str, ...] | None:
    """The models a server lists, or None when it does not answer in time."""
    answer = _get(endpoint, "/models", base=True)
    if answer is None:
        return None
    rows = answer.get("data") or answer.get("models") or ()
    return tuple(str(row["id"]) for row in rows if isinstance(row, dict) and row.get("id"))


def listed_by_each(endpoints: list[Endpoint]) -> list[tuple[str, ...] | None]:
    """`listed_models` of several servers at once."""
    if not endpoints:
        return []
    with ThreadPoolExecutor(len(endpoints)) as pool:
        return list(pool.map(listed_models, endpoints))


def served_window(endpoint: Endpoint, model: str) -> int | None:
    """The window, in tokens, that a server on this machine serves `model` with, when it says."""
    if not endpoint.loopback:
        return None
    if endpoint.provider == "ollama":
        return _ollama_window(endpoint, model)
    if endpoint.provider == "llamacpp":
        answer = _get(endpoint, "/props") or {}
        return _positive(
            (answer.get("default_generation_settings") or {}).get("n_ctx") or answer.get("n_ctx")
        )
    if endpoint.provider == "lmstudio":
        rows = (_get(endpoint, "/api/v0/models") or {}).get("data") or ()
        return _row_value(rows, "id", model, "loaded_context_length")
    rows = (_get(endpoint, "/models", base=True) or {}).get("data") or ()
    return _row_value(rows, "id", model, "max_model_len")


def _ollama_window(endpoint: Endpoint, model: str) -> int | None:
    rows = (_get(endpoint, "/api/ps") or {}).get("models") or ()
    window = _row_value(rows, "name", model, "context_length")
    if window:
        return window
    shown = _get(endpoint, "/api/show", {"model": model}) or {}
    match = _NUM_CTX.search(str(shown.get("parameters") or ""))
    return int(match.group(1)) if match else None


def _row_value(rows: Any, key: str, name: str, field: str) -> int | None:
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get(key) in (name, f"{name}:latest"):
            return _positive(row.get(field))
    return None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _get(
    endpoint: Endpoint, path: str, body: Mapping[str, str] | None = None, *, base: bool = False
) -> dict[str, Any] | None:
    parts = urlsplit(endpoint.base_url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PROBE_SECONDS)
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    try:
        if body is None:
            connection.request("GET", (parts.path if base else "") + path, headers=headers)
        else:
            connection.request(
                "POST", path, json.dumps(body), {"Content-Type": "application/json", **headers}
            )
        response = connection.getresponse()
        answer = json.loads(_body(response)) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else None


def _body(response: http.client.HTTPResponse) -> bytes:
    """The whole body, or what a few probes' time and 4 MB allow: a server may drip for ever."""
    until, body = time.monotonic() + 4 * PROBE_SECONDS, b""
    while (chunk := response.read1(65_536)) and len(body) < 4_000_000 and time.monotonic() < until:
        body += chunk
    return body
