"""From settings and environment to an endpoint: addresses in every spelling, keys, defaults, handles."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.errors import ModelError, UsageError
from letta_code.models.base import Dialect
from letta_code.models.catalog import known_models, model_info
from letta_code.models.endpoint import base_url
from letta_code.models.providers import discover, open_model, resolve
from letta_code.settings.loading import ProviderSettings, Settings
from tests.model_server import ModelServer, turn
from tests.models.support import ask, user

NOTHING = {
    "OLLAMA_HOST": "127.0.0.1:9",
    "LMSTUDIO_BASE_URL": "127.0.0.1:9",
    "LLAMACPP_BASE_URL": "127.0.0.1:9",
    "VLLM_BASE_URL": "127.0.0.1:9",
}


@pytest.mark.parametrize(
    ("text", "chat", "anthropic"),
    [
        ("localhost:11434", "http://localhost:11434/v1", "http://localhost:11434"),
        (" http://localhost:11434/ ", "http://localhost:11434/v1", "http://localhost:11434"),
        ("http://h.example/v1", "http://h.example/v1", "http://h.example"),
        ("http://h.example/v1/", "http://h.example/v1", "http://h.example"),
        ("http://h.example/v1/messages", "http://h.example/v1", "http://h.example"),
        ("http://h.example/v1/chat/completions/", "http://h.example/v1", "http://h.example"),
        (
            "HTTPS://h.example:8443/proxy/v1",
            "https://h.example:8443/proxy/v1",
            "https://h.example:8443/proxy",
        ),
        ("api.example.com", "https://api.example.com/v1", "https://api.example.com"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        (":8000", "http://localhost:8000/v1", "http://localhost:8000"),
        ("[::1]:8000", "http://[::1]:8000/v1", "http://[::1]:8000"),
        ("'http://localhost:1234'", "http://localhost:1234/v1", "http://localhost:1234"),
        ("https://h.example/api/paas/v4", "https://h.example/api/paas/v4", "https://h.example/api/paas/v4"),
    ],
)
def test_every_spelling_of_an_address(text: str, chat: str, anthropic: str) -> None:
    assert base_url(text, "openai-chat", "test") == chat
    assert base_url(text, "anthropic", "test") == anthropic
    assert base_url(chat, "openai-chat", "test") == chat


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h:port",
        "a b",
        "http://u:secret@h?x=1",
        "[::1",
    ],
)
def test_an_address_that_is_none_gives_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        base_url(text, "openai-chat", "X_BASE_URL")
    assert "X_BASE_URL" in caught.value.message
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message


@given(st.text(max_size=40), st.sampled_from(["anthropic", "openai-chat"]))
def test_any_text_is_an_address_or_one_clear_error(text: str, dialect: Dialect) -> None:
    try:
        url = base_url(text, dialect, "X")
    except UsageError as error:
        url = ""
        lines = error.message.splitlines()
    else:
        lines = [url]
    assert len(lines) == 1
    assert not url or url.startswith(("http://", "https://"))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0:11435", "http://127.0.0.1:11435/v1"),
        ("myhost", "http://myhost:11434/v1"),
        ("http://myhost:5000/", "http://myhost:5000/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
    ],
)
def test_forms_of_ollama_host(host: str, url: str) -> None:
    assert resolve("ollama", Settings(), {"OLLAMA_HOST": host}).base_url == url


def test_where_keys_come_from_is_told_and_the_key_is_not() -> None:
    settings = Settings(providers={"openrouter": ProviderSettings("sk-or-secret", None)})
    environment = {**NOTHING, "ANTHROPIC_API_KEY": " sk-ant-secret\n"}
    endpoint = resolve("anthropic", settings, environment)
    assert (endpoint.api_key, endpoint.key_source) == ("sk-ant-secret", "ANTHROPIC_API_KEY")
    lines = {line.provider: line for line in discover(settings, environment)}
    assert lines["anthropic"].key_source == "ANTHROPIC_API_KEY"
    assert lines["openrouter"].key_source == "settings"
    assert lines["anthropic"].reachable is None
    assert lines["ollama"].reachable is False
    assert "secret" not in f"{lines}{endpoint}"


def test_a_key_with_impossible_characters_is_one_line() -> None:
    with pytest.raises(UsageError):
        resolve("openai", Settings(), {"OPENAI_API_KEY": "sk-“quoted”"})


def test_dialects_follow_the_provider_and_the_flag() -> None:
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:1", "MY_LAB_BASE_URL": "127.0.0.1:2"}
    assert resolve("openai", Settings(), environment).dialect == "openai-responses"
    assert resolve("openai", Settings(), environment, "127.0.0.1:3").dialect == "openai-chat"
    assert resolve("anthropic", Settings(), environment, "127.0.0.1:3").dialect == "anthropic"
    assert resolve("my-lab", Settings(), environment).base_url == "http://127.0.0.1:2/v1"


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        ("claude-opus-5-5", "anthropic/claude-opus-5-5"),
        ("gpt-6.2-sol", "openai/gpt-6.2-sol"),
        ("olama/qwen", "ollama"),
        ("/x", "for example"),
        ("x/", "for example"),
        ("vllm/\udcff", "for example"),
    ],
)
def test_a_wrong_handle_comes_with_a_suggestion(handle: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_model(handle, Settings(), {})
    assert words in caught.value.hint


def test_f02_without_anything_one_screen_says_three_ways() -> None:
    with pytest.raises(ModelError) as caught:
        open_model(None, Settings(), NOTHING)
    assert caught.value.kind == "no_model"
    assert caught.value.exit_code != 0
    assert all(f"{number}. " in caught.value.hint for number in (1, 2, 3))


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ModelError) as caught:
        open_model("anthropic/claude-opus-5-5", Settings(), {})
    assert caught.value.kind == "auth"
    assert "ANTHROPIC_API_KEY" in caught.value.hint


def test_the_default_is_what_there_is_a_key_for() -> None:
    assert open_model(None, Settings(), {**NOTHING, "OPENAI_API_KEY": "sk-xxxx"}).info.provider == "openai"
    chosen = open_model(None, Settings(model="vllm/mine"), {**NOTHING, "OPENAI_API_KEY": "sk-xxxx"})
    assert chosen.info.handle == "vllm/mine"


async def test_c24_a_local_server_is_found_and_needs_no_key() -> None:
    with ModelServer([turn("ok"), turn("ok")], models=["qwen"], reported_window=8192) as server:
        model = open_model(None, Settings(), {**NOTHING, "VLLM_BASE_URL": server.url})
        assert (model.info.handle, model.info.window) == ("vllm/qwen", 8192)
        assert (await ask(model, [user("hi")])).message.text == "ok"
        await model.close()
        flagged = open_model(None, Settings(), {}, server.url)
        assert flagged.info.handle == "openai/qwen"
        assert (await ask(flagged, [user("hi")])).message.text == "ok"
        await flagged.close()


async def test_a_proxy_is_not_used_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with ModelServer([turn("ok")]) as server:
        model = open_model("vllm/qwen", Settings(), {"VLLM_BASE_URL": server.url})
        assert (await ask(model, [user("hi")])).message.text == "ok"
        await model.close()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", "the proxy"),
        ("HTTPS_PROXY", "ftp://ada:secret@127.0.0.1:9", "the proxy"),
        ("HTTPS_PROXY", "http://ada:secret:x", "the proxy"),
        ("SSL_CERT_FILE", "/nowhere/at-all.pem", "the certificates"),
        ("SSL_CERT_FILE", os.devnull, "the certificates"),
    ],
)
async def test_an_environment_that_no_request_can_use_is_one_line(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    model = open_model("anthropic/claude-opus-4-8", Settings(), {"ANTHROPIC_API_KEY": "sk-ant-0123456789"})
    with pytest.raises(ModelError) as caught:
        await ask(model, [user("hi")])
    await model.close()
    assert words in caught.value.message
    assert not caught.value.retryable
    assert "secret" not in caught.value.message + caught.value.hint


def test_the_catalog_states_what_it_does_not_know() -> None:
    assert all(
        model_info(handle.partition("/")[0], handle.partition("/")[2]).known for handle in known_models()
    )
    assert model_info("anthropic", "claude-haiku-4-5-20251001").window == 200_000
    unknown = model_info("somewhere", "new")
    assert (unknown.known, unknown.window, unknown.max_output, unknown.price) == (False, 128_000, 8_192, None)
    assert model_info("ollama", "qwen3").window == 32_000
    takes = {
        handle
        for handle in known_models()
        if model_info(handle.partition("/")[0], handle.partition("/")[2]).system_messages
    }
    assert "anthropic/claude-opus-4-8" in takes
    assert "anthropic/claude-opus-4-7" not in takes
    assert "openai/gpt-6.2-sol" in takes
    assert not model_info("openai", "gpt-6.2-sol", "openai-chat").system_messages
