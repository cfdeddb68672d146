"""From what the person set to a model that can be asked.

A handle is `provider/name`. Key and address of a provider come from `<PROVIDER>_API_KEY` and
`<PROVIDER>_BASE_URL` (and `OLLAMA_HOST`), else from settings, else from its defaults; any other provider
with a base URL is an OpenAI-compatible server. `anthropic` speaks Messages and `openai` Responses,
wherever their base URLs point; every other provider, and `openai` with `--base-url`, speaks Chat
Completions. To have Chat Completions from settings alone, name the provider otherwise, such as
`openai-compatible/NAME` with OPENAI_COMPATIBLE_BASE_URL.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from letta_code.core.text import well_formed
from letta_code.errors import ModelError, UsageError
from letta_code.models.base import Dialect, Model
from letta_code.models.catalog import DEFAULT_MODELS, LOCAL_PROVIDERS, model_info, provider_dialect
from letta_code.models.endpoint import Endpoint, base_url
from letta_code.models.local import listed_by_each, listed_models, served_window
from letta_code.models.wire import idle_seconds, with_window
from letta_code.settings.loading import ProviderSettings, Settings

_DEFAULT_URLS = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}
_CLOUD = ("anthropic", "openai", "openrouter")
_OLLAMA_PORT = 11434
_NO_MODEL_HINT = (
    "three ways to get one:\n"
    "  1. set a key:           export ANTHROPIC_API_KEY=…   (or OPENAI_API_KEY, OPENROUTER_API_KEY)\n"
    "  2. run a local server:  ollama serve                 (LM Studio, llama.cpp and vLLM are found too)\n"
    "  3. name a server:       letta --model openai/NAME --base-url http://HOST:PORT"
)


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """One line of `letta models`. `key_source` says where the key comes from, "" for none; `reachable`
    is None where it was not tried (nothing but loopback is)."""

    provider: str
    address: str
    key_source: str
    configured: bool
    reachable: bool | None
    models: tuple[str, ...] = ()


def open_model(
    handle: str | None,
    settings: Settings,
    environment: Mapping[str, str],
    base_url: str | None = None,
) -> Model:
    """The model for `handle`, or the default one; `base_url` is the `--base-url` flag.

    Only servers on this machine are asked anything, each for at most 0.3 s.

    Raises:
        UsageError: the handle or an address cannot be read.
        ModelError: no model is configured or found (`no_model`), or its key is missing (`auth`).
    """
    handle = (handle or settings.model or "").strip() or _found(settings, environment, base_url)
    endpoint, name = locate(handle, settings, environment, base_url)
    provider = endpoint.provider
    info = model_info(provider, name, endpoint.dialect)
    window = served_window(endpoint, name) if provider in LOCAL_PROVIDERS else None
    if window:
        info = with_window(info, window)
    idle = idle_seconds(endpoint, environment)
    if endpoint.dialect == "anthropic":
        from letta_code.models.anthropic import AnthropicModel

        return AnthropicModel(info, endpoint, idle)
    if endpoint.dialect == "openai-responses":
        from letta_code.models.openai_responses import OpenAIResponsesModel

        return OpenAIResponsesModel(info, endpoint, idle)
    from letta_code.models.openai_chat import OpenAIChatModel

    return OpenAIChatModel(info, endpoint, idle)


def locate(
    handle: str, settings: Settings, environment: Mapping[str, str], base_url: str | None = None
) -> tuple[Endpoint, str]:
    """Where the model `handle` is, and its name there. Nothing is asked of a server.

    Raises:
        UsageError: the handle or an address cannot be read.
        ModelError: its key is missing (`auth`).
    """
    provider, _, name = handle.partition("/")
    provider, name = provider.strip().lower(), name.strip()
    if not provider or not name or name != well_formed(name):
        raise UsageError(f"{handle!r} is not a model: write provider/name", _suggestion(handle))
    endpoint = resolve(provider, settings, environment, base_url)
    if endpoint.api_key is None and endpoint.base_url == _DEFAULT_URLS.get(provider) and provider in _CLOUD:
        raise ModelError(
            f"there is no key for {provider}",
            "auth",
            hint=f"export {_variable(provider)}_API_KEY=…"
            f" or: letta config set providers.{provider}.api_key KEY",
        )
    return endpoint, name


def resolve(
    provider: str, settings: Settings, environment: Mapping[str, str], flag: str | None = None
) -> Endpoint:
    """Address and key of `provider`; `flag` is an address that goes before all others.

    Raises:
        UsageError: the provider is not known and has no address, or an address or key cannot be read.
    """
    own = settings.providers.get(provider, ProviderSettings())
    variable = _variable(provider)
    dialect: Dialect = "openai-chat" if flag and provider != "anthropic" else provider_dialect(provider)
    key, source = _key(provider, own, environment)
    if flag:
        url = base_url(flag, dialect, "--base-url")
    elif environment.get(f"{variable}_BASE_URL", "").strip():
        url = base_url(environment[f"{variable}_BASE_URL"], dialect, f"{variable}_BASE_URL")
    elif own.base_url:
        url = base_url(own.base_url, dialect, f"settings: providers.{provider}.base_url")
    elif provider == "ollama" and environment.get("OLLAMA_HOST", "").strip():
        url = base_url(environment["OLLAMA_HOST"], dialect, "OLLAMA_HOST", _OLLAMA_PORT)
    elif provider in _DEFAULT_URLS:
        url = _DEFAULT_URLS[provider]
    else:
        raise UsageError(f"the provider {provider!r} is not known", _provider_hint(provider, variable))
    return Endpoint(provider, dialect, url, key, source)


def discover(settings: Settings, environment: Mapping[str, str]) -> list[ProviderStatus]:
    """What can be reached and where each key comes from; servers on this machine are asked for models.

    Raises:
        UsageError: an address or key cannot be read.
    """
    named = {name.removesuffix("_BASE_URL").lower() for name in environment if name.endswith("_BASE_URL")}
    others = sorted(
        {*settings.providers, *(name for name in named if _is_ours(name, environment))} - {*_DEFAULT_URLS}
    )
    endpoints = []
    for provider in (*_DEFAULT_URLS, *others):
        if provider in _DEFAULT_URLS or _configured(provider, settings, environment):
            endpoints.append(resolve(provider, settings, environment))
    nearby = [endpoint for endpoint in endpoints if endpoint.loopback]
    listings = dict(zip((endpoint.provider for endpoint in nearby), listed_by_each(nearby), strict=True))
    return [
        ProviderStatus(
            provider=endpoint.provider,
            address=endpoint.address,
            key_source=endpoint.key_source,
            configured=_usable(endpoint),
            reachable=listings[endpoint.provider] is not None if endpoint.provider in listings else None,
            models=tuple(f"{endpoint.provider}/{name}" for name in listings.get(endpoint.provider) or ()),
        )
        for endpoint in endpoints
    ]


def _usable(endpoint: Endpoint) -> bool:
    return endpoint.api_key is not None or endpoint.base_url != _DEFAULT_URLS.get(endpoint.provider)


def _is_ours(name: str, environment: Mapping[str, str]) -> bool:
    return bool(re.fullmatch(r"[a-z0-9_]+", name)) and bool(
        environment.get(f"{name.upper()}_BASE_URL", "").strip()
    )


def _configured(provider: str, settings: Settings, environment: Mapping[str, str]) -> bool:
    own = settings.providers.get(provider)
    return bool(own and own.base_url) or bool(environment.get(f"{_variable(provider)}_BASE_URL", "").strip())


def _found(settings: Settings, environment: Mapping[str, str], flag: str | None) -> str:
    """The default handle: what there is a key or an address for, else a server that runs here."""
    if flag:
        return _only_model(resolve("openai", settings, environment, flag))
    for provider, name in DEFAULT_MODELS.items():
        endpoint = resolve(provider, settings, environment)
        if endpoint.api_key is not None or (not endpoint.loopback and _usable(endpoint)):
            return f"{provider}/{name}"
    near = [resolve(provider, settings, environment) for provider in (*LOCAL_PROVIDERS, "openai")]
    near = [
        endpoint
        for endpoint in near
        if endpoint.loopback or endpoint.base_url != _DEFAULT_URLS[endpoint.provider]
    ]
    for endpoint, models in zip(near, listed_by_each(near), strict=True):
        if models:
            return f"{endpoint.provider}/{models[0]}"
    raise ModelError("there is no model to talk to", "no_model", hint=_NO_MODEL_HINT)


def _only_model(endpoint: Endpoint) -> str:
    models = listed_models(endpoint)
    if models is None:
        raise ModelError(
            f"nothing answers at {endpoint.address}",
            "network",
            hint="is the server running, and is the port right?",
        )
    if len(models) == 1:
        return f"openai/{models[0]}"
    listed = ", ".join(f"openai/{name}" for name in models[:10]) or "it lists none"
    raise UsageError(f"which model at {endpoint.address}? say it with --model", listed)


def _key(provider: str, own: ProviderSettings, environment: Mapping[str, str]) -> tuple[str | None, str]:
    names = [f"{_variable(provider)}_API_KEY"] + (["ANTHROPIC_AUTH_TOKEN"] if provider == "anthropic" else [])
    candidates = [(environment.get(name, ""), name) for name in names] + [(own.api_key or "", "settings")]
    for value, source in candidates:
        key = value.strip()
        if not key:
            continue
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError(
                f"the key from {source} has characters that no key has",
                "copy it again, without quotes or line breaks",
            )
        return key, source
    return None, ""


def _variable(provider: str) -> str:
    return re.sub(r"\W", "_", provider).upper()


def _suggestion(handle: str) -> str:
    word = handle.strip("/ ").lower()
    if word.startswith("claude"):
        return f"perhaps anthropic/{word}"
    if word.startswith(("gpt", "o1", "o3", "o4")):
        return f"perhaps openai/{word}"
    return f"for example anthropic/{DEFAULT_MODELS['anthropic']} or ollama/qwen3"


def _provider_hint(provider: str, variable: str) -> str:
    close = difflib.get_close_matches(provider, _DEFAULT_URLS, 1)
    known = ", ".join(_DEFAULT_URLS)
    meant = f"perhaps {close[0]}; " if close else ""
    return f"{meant}known are {known}; for an OpenAI-compatible server set {variable}_BASE_URL"
