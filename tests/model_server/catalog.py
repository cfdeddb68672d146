"""Everything that is not a model request: model lists in each server family's shape, and probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.model_server.server import ModelServer


def get(path: str, headers: Mapping[str, str], owner: ModelServer) -> Any:
    """The answer to GET or HEAD `path`, or None when there is no such path."""
    window = owner.reported_window
    path = path.removeprefix("/v1")
    if path == "":
        return "scripted model server"
    if path == "/models":
        if "anthropic-version" in headers:
            models = [_anthropic(name, window) for name in owner.models]
            ends = {"first_id": owner.models[0], "last_id": owner.models[-1]} if models else {}
            return {"data": models, "has_more": False, **ends}
        return {"object": "list", "data": [_openai(name, window) for name in owner.models]}
    if path.startswith("/models/") and path.removeprefix("/models/") in owner.models:
        name = path.removeprefix("/models/")
        return _anthropic(name, window) if "anthropic-version" in headers else _openai(name, window)
    if path == "/api/tags":
        return {"models": [{"name": name, "model": name} for name in owner.models]}
    if path == "/api/ps":
        return {
            "models": [
                {"name": name, "model": name} | _key("context_length", window) for name in owner.models
            ]
        }
    if path == "/api/version":
        return {"version": "0.14.0"}
    if path == "/props":
        return {"default_generation_settings": _key("n_ctx", window)}
    if path == "/health":
        return {"status": "ok"}
    return None


def post(path: str, body: Any, owner: ModelServer) -> Any:
    """The answer to POST `path` where it asks no model, or None when there is no such path."""
    if path != "/api/show":
        return None
    window = owner.reported_window
    parameters = "" if window is None else f"num_ctx                        {window}"
    info: dict[str, Any] = {"general.architecture": "llama"} | _key("llama.context_length", window)
    return {"parameters": parameters, "model_info": info, "capabilities": ["completion", "tools"]}


def _openai(name: str, window: int | None) -> dict[str, Any]:
    made: dict[str, Any] = {"id": name, "object": "model", "created": 1764460800, "owned_by": "scripted"}
    meta = {} if window is None else {"meta": {"n_ctx_train": window, "n_ctx": window}}
    return made | _key("max_model_len", window) | _key("context_length", window) | meta


def _anthropic(name: str, window: int | None) -> dict[str, Any]:
    made = {"type": "model", "id": name, "display_name": name, "created_at": "2026-11-30T00:00:00Z"}
    return made | {"lifecycle": "active"} | _key("max_input_tokens", window)


def _key(name: str, window: int | None) -> dict[str, Any]:
    return {} if window is None else {name: window}
