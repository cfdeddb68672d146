"""Every way a request can fail, in each dialect: the right kind, never a `Completed`, no key shown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import AsyncGeneratorType
from typing import Any

import pytest

from letta_code.agent.retry import RetryPolicy
from letta_code.errors import ModelError
from letta_code.models.failures import retry_after
from letta_code.models.providers import open_model
from letta_code.settings.loading import Settings
from tests.models.support import ANTHROPIC, CHAT, KEY, RESPONSES, WAYS, Way, ask, failure, user

ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.dialect)


@ways
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "auth", False),
        (402, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (408, "network", True),
        (409, "overloaded", True),
        (413, "context_overflow", False),
        (422, "invalid_request", False),
        (429, "rate_limited", True),
        (500, "overloaded", True),
        (502, "overloaded", True),
        (503, "overloaded", True),
        (529, "overloaded", True),
    ],
)
async def test_c12_statuses(way: Way, status: int, kind: str, retryable: bool) -> None:
    error = await failure(way, {"status": status})
    assert (error.kind, error.retryable, error.status) == (kind, retryable, status)


@ways
async def test_c12_retry_after_is_read(way: Way) -> None:
    error = await failure(way, {"status": 429, "headers": {"Retry-After": "2"}})
    assert error.retry_after == 2.0


@ways
async def test_c12_a_server_that_says_itself_whether_to_send_again_is_believed(way: Way) -> None:
    policy = RetryPolicy(base=0)
    busy = await failure(way, {"status": 529, "headers": {"x-should-retry": "false"}})
    with pytest.raises(ModelError):
        policy.wait(busy, 1)
    assert busy.exit_code == 75
    odd = await failure(way, {"status": 400, "headers": {"x-should-retry": "true"}})
    assert policy.wait(odd, 1) == 0
    with pytest.raises(ModelError):
        policy.wait(odd, 6)


def test_c12_every_form_of_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert retry_after({"retry-after": "-3"}) == 0.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "nan"}) is None
    assert retry_after({}) is None
    for nothing in ("", " ", "inf", "1e999", "[1]", "1, 2", "Sun, 99 Foo 2020 99:99:99 GMT"):
        assert retry_after({"retry-after-ms": nothing, "retry-after": nothing}) is None
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    moment = time.gmtime(time.time() + 100)
    forms = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
    for form in (*forms, "%a, %d %b %Y %H:%M:%S -0000"):
        later = retry_after({"retry-after": time.strftime(form, moment)})
        assert later is not None
        assert 90 < later <= 100, form
    monkeypatch.undo()
    time.tzset()


@ways
@pytest.mark.parametrize(
    "fault",
    [
        {"drop": "mid", "how": "reset"},
        {"drop": "mid", "how": "close"},
        {"drop": "mid", "how": "eof"},
        {"drop": "in_tool", "how": "eof"},
        {"drop": "in_thinking", "how": "eof"},
        {"drop": "after_headers", "how": "eof"},
        {"garbage": True, "after": 2},
    ],
    ids=str,
)
async def test_c15_a_broken_stream_is_never_success(way: Way, fault: dict[str, Any]) -> None:
    assert (await failure(way, fault)).kind == "broken_stream"


@ways
async def test_c15_c16_silence_ends_within_the_idle_timeout(way: Way) -> None:
    error = await failure(way, {"stall": "forever", "after": 2}, LETTA_STREAM_IDLE_SECONDS="0.3")
    assert error.kind == "broken_stream"
    error = await failure(way, {"stall": "forever"}, LETTA_STREAM_IDLE_SECONDS="0.3")
    assert error.kind == "network"


ALIVE = {
    "pings": b'event: ping\ndata: {"type": "ping"}\n\n',
    "comments": b": still here\n\n",
    "the same event": b'data: {"type": "noise", "choices": []}\n\n',
    "a slow head": b"",
}


@ways
@pytest.mark.parametrize("alive", ALIVE)
async def test_c15_a_server_that_only_keeps_the_connection_alive_is_not_waited_for(
    way: Way, alive: str
) -> None:
    gone = threading.Event()
    if way is CHAT:
        way = Way(CHAT.dialect, "compatible/qwen", "COMPATIBLE")  # one that is not asked for its window

    def answer() -> None:
        peer, _ = listener.accept()
        peer.settimeout(50)
        with peer, contextlib.suppress(OSError):
            peer.sendall(b"HTTP/1.1 200 OK\r\n")
            if alive != "a slow head":
                peer.sendall(b"content-type: text/event-stream\r\n\r\n")
            while not gone.wait(0.02):
                peer.sendall(ALIVE[alive] or b"x-more: y\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as hand:
        listener.settimeout(50)
        served = hand.submit(answer)
        environment = way.environment(f"http://127.0.0.1:{listener.getsockname()[1]}")
        model = open_model(way.handle, Settings(), environment | {"LETTA_STREAM_IDLE_SECONDS": "0.2"})
        try:
            with pytest.raises(ModelError) as caught:
                await ask(model, [user("hi")])
        finally:
            gone.set()
        await model.close()
        served.result()
    assert caught.value.silent
    assert caught.value.kind == ("network" if alive == "a slow head" else "broken_stream")


@ways
async def test_dropped_before_an_answer_is_network(way: Way) -> None:
    assert (await failure(way, {"drop": "before"})).kind == "network"


@ways
async def test_an_overload_inside_the_stream(way: Way) -> None:
    error = await failure(way, {"event_error": "overloaded_error", "after": 2})
    assert error.kind == "overloaded"


@ways
@pytest.mark.parametrize(
    "fault",
    [
        {"event_error": "overloaded_error", "after": 2},
        {"garbage": True, "after": 2},
        {"status": 200, "body": "<p>"},
    ],
    ids=str,
)
async def test_a_failure_leaves_no_stream_behind(way: Way, fault: dict[str, Any]) -> None:
    """One that the garbage collector finds after the loop is closed complains on stderr."""
    error = await failure(way, fault)
    assert error.__traceback__ is not None  # which holds every frame below
    for _ in range(3):  # one turn of the loop for each stream that another one read
        await asyncio.sleep(0)
    streams = [item for item in gc.get_objects() if isinstance(item, AsyncGeneratorType)]
    assert [item for item in streams if item.ag_frame is not None] == []


async def test_a_failed_response_event() -> None:
    error = await failure(RESPONSES, {"event_error": "server_error", "form": "failed", "after": 2})
    assert error.kind == "overloaded"


@ways
async def test_an_html_page_becomes_a_short_line(way: Way) -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body>" + "x" * 5000 + "</body></html>"
    error = await failure(way, {"status": 502, "body": page, "headers": {"Content-Type": "text/html"}})
    assert error.kind == "overloaded"
    assert "502 Bad Gateway" in error.message
    assert len(error.message) < 200


@pytest.mark.parametrize(
    ("way", "message", "kind"),
    [
        (ANTHROPIC, "prompt is too long: 210000 tokens > 200000 maximum", "context_overflow"),
        (ANTHROPIC, "input length and `max_tokens` exceed context limit: 1 + 2 > 2", "context_overflow"),
        (ANTHROPIC, "max_tokens: 100000 > 8192, the maximum number of output tokens", "invalid_request"),
        (RESPONSES, "Your input exceeds the context window of this model.", "context_overflow"),
        (CHAT, "This model's maximum context length is 4096 tokens.", "context_overflow"),
        (CHAT, "the request exceeds the available context size", "context_overflow"),
    ],
)
async def test_c21_overflow_is_told_from_other_limits(way: Way, message: str, kind: str) -> None:
    assert (await failure(way, {"status": 400, "message": message})).kind == kind


async def test_an_empty_account_is_not_retried() -> None:
    body = {
        "error": {
            "message": "You exceeded your quota",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
        }
    }
    assert (await failure(CHAT, {"status": 429, "body": body})).kind == "auth"


@ways
async def test_secrets_in_a_servers_words_are_not_repeated(way: Way) -> None:
    error = await failure(way, {"status": 401, "message": f"bad key {KEY} at https://u:pw@host/x"})
    assert "pw@" not in error.message


@ways
async def test_nothing_listens(way: Way) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    model = open_model(way.handle, Settings(), way.environment(address))
    with pytest.raises(ModelError) as caught:
        await ask(model, [user("hi")])
    await model.close()
    assert caught.value.kind == "network"
    assert "connection refused" in caught.value.message


async def test_a_server_that_speaks_no_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            for _ in range(3):
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(65_536)
                    peer.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")

        thread = threading.Thread(target=babble, daemon=True)
        thread.start()
        environment = CHAT.environment(f"http://127.0.0.1:{listener.getsockname()[1]}")
        model = open_model(CHAT.handle, Settings(), environment)
        with pytest.raises(ModelError) as caught:
            await ask(model, [user("hi")])
        await model.close()
    assert caught.value.retryable
