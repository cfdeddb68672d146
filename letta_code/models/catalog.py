"""Known models: window, output limit, price, and what they accept. Data only; nothing is asked of a server.

Names are those of the installed SDKs (anthropic 2.14, openai 3.57); windows and prices are the providers'
published ones of November 2026. What is not known is stated as a default (`known=False`) or None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from letta_code.models.base import Dialect, ModelInfo, Price

DEFAULT_WINDOW = 128_000
DEFAULT_LOCAL_WINDOW = 32_000
DEFAULT_MAX_OUTPUT = 8_192
LOCAL_PROVIDERS = ("ollama", "lmstudio", "llamacpp", "vllm")

_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})\Z")


@dataclass(frozen=True, slots=True)
class _Known:
    window: int
    max_output: int
    price: Price | None = None
    thinking: bool = True
    system_messages: bool = False


def _claude(
    price: Price | None, *, system: bool = True, thinking: bool = True, small: bool = False
) -> _Known:
    return _Known(200_000 if small else 1_000_000, 64_000 if small else 128_000, price, thinking, system)


def _gpt(price: Price | None) -> _Known:
    return _Known(1_050_000, 128_000, price, system_messages=True)


_OPUS_4 = Price(5, 25, 0.5, 6.25)
_FABLE_5 = Price(10, 50, 1, 12.5)
_FABLE_5_1 = Price(10, 50, 0.25, 12.5)

# Prices that grow with the length of the prompt (claude-haiku-5-5 and all GPT-6) are given for Claude
# as None and for GPT at the standard rate, which holds up to 272,000 prompt tokens.
# claude-sonnet-5 is younger than claude-opus-4-8, but reports contradict each other on whether it takes
# system messages; a wrong yes would break the conversation, a wrong no costs cache hits.
_ANTHROPIC: dict[str, _Known] = {
    "claude-fable-5-2": _claude(Price(8, 40, 0.2, 10)),
    "claude-mythos-5-2": _claude(None),
    "claude-haiku-5-5": _claude(None),
    "claude-sonnet-5-5": _claude(Price(2, 10, 0.1, 2.5)),
    "claude-fable-5-1": _claude(_FABLE_5_1),
    "claude-opus-5-5": _claude(Price(4, 20, 0.2, 5)),
    "claude-mythos-5-1": _claude(_FABLE_5_1),
    "claude-sonnet-5": _claude(Price(2, 10, 0.2, 2.5), system=False),
    "claude-fable-5": _claude(_FABLE_5),
    "claude-mythos-5": _claude(_FABLE_5),
    "claude-opus-5": _claude(_OPUS_4),
    "claude-opus-4-8": _claude(_OPUS_4),
    "claude-opus-4-7": _claude(_OPUS_4, system=False),
    "claude-mythos-preview": _claude(None, system=False),
    "claude-opus-4-6": _claude(_OPUS_4, system=False),
    "claude-sonnet-4-6": _Known(1_000_000, 64_000),
    # The 4.5 models know only thinking with a token budget, which we do not use.
    "claude-haiku-4-5": _claude(None, system=False, thinking=False, small=True),
    "claude-opus-4-5": _claude(_OPUS_4, system=False, thinking=False, small=True),
    "claude-sonnet-4-5": _claude(None, system=False, thinking=False, small=True),
}

_OPENAI: dict[str, _Known] = {
    "gpt-6.2-astra": _gpt(None),
    "gpt-6.2-sol": _gpt(Price(2, 10, 0.1, 2.5)),
    "gpt-6.1-sol": _gpt(Price(2, 10, 0.1, 2.5)),
    "gpt-6.1-terra": _gpt(None),
    "gpt-6-astra": _gpt(Price(10, 50, 1, 12.5)),
    "gpt-6-sol": _gpt(Price(2, 10, 0.2, 2.5)),
    "gpt-6-luna": _gpt(Price(0.1, 0.5, 0.01, 0.125)),
    "gpt-5.6-sol": _gpt(None),
    "gpt-5.6-terra": _gpt(None),
    "gpt-5.6-luna": _gpt(None),
}

DEFAULT_MODELS = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-6.2-sol"}
"""The model that is used when there is a key for a provider and nobody named one."""


def model_info(provider: str, name: str, dialect: Dialect | None = None) -> ModelInfo:
    """What is known about `provider/name`; stated defaults for a model that is not in the table.

    `dialect` None means the provider's own. A dated name (`…-20251001`) is looked up without its date.
    """
    dialect = dialect or provider_dialect(provider)
    table = {"anthropic": _ANTHROPIC, "openai": _OPENAI}.get(provider, {})
    known = table.get(name) or table.get(_DATED.sub("", name))
    if known is not None:
        return ModelInfo(
            handle=f"{provider}/{name}",
            provider=provider,
            name=name,
            dialect=dialect,
            window=known.window,
            max_output=known.max_output,
            # The Responses API takes developer messages anywhere; of Chat Completions only some servers do.
            system_messages=known.system_messages and dialect != "openai-chat",
            thinking=known.thinking,
            price=known.price,
        )
    return ModelInfo(
        handle=f"{provider}/{name}",
        provider=provider,
        name=name,
        dialect=dialect,
        window=DEFAULT_LOCAL_WINDOW if provider in LOCAL_PROVIDERS else DEFAULT_WINDOW,
        max_output=DEFAULT_MAX_OUTPUT,
        system_messages=False,
        known=False,
    )


def provider_dialect(provider: str) -> Dialect:
    """The dialect a provider speaks when nothing else was asked for."""
    if provider == "anthropic":
        return "anthropic"
    return "openai-responses" if provider == "openai" else "openai-chat"


def known_models() -> tuple[str, ...]:
    """The handles in the table."""
    return tuple(f"anthropic/{name}" for name in _ANTHROPIC) + tuple(f"openai/{name}" for name in _OPENAI)
