"""Answers with status 200 that no well-behaved server gives: understood where they can be, else told apart
as broken, never a crash and never a success that is none. Played byte for byte."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.core.messages import Message, Text, ToolCall, ToolResult, Usage
from letta_code.errors import ModelError
from letta_code.models.arguments import CallIds, plain_name
from letta_code.models.base import Completed
from letta_code.models.sse import read_events
from tests.model_server import ModelServer, call, turn
from tests.models.support import ANTHROPIC, CHAT, RESPONSES, WAYS, Way, answers, ask, user

ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.dialect)
SSE = {"content-type": "text/event-stream"}


def http(body: str, headers: dict[str, str] | None = None, status: str = "200 OK") -> str:
    lines = [f"HTTP/1.1 {status}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in (SSE if headers is None else headers).items()]
    return "\r\n".join(lines) + "\r\n\r\n" + body


def events(*data: Any) -> str:
    lines = [item if isinstance(item, str) else json.dumps(item) for item in data]
    return "".join(f"data: {line}\n\n" for line in lines)


def delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def claude(*blocks: tuple[dict[str, Any], dict[str, Any]], stop: str = "end_turn", **usage: Any) -> str:
    """A stream of the Messages API with one delta for each block."""
    made: list[Any] = [{"type": "message_start", "message": {"usage": usage}}]
    for index, (block, change) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made.append({"type": "content_block_delta", "index": index, "delta": change})
    made.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage})
    return events(*made, {"type": "message_stop"})


WORDS = ({"type": "text", "text": ""}, {"type": "text_delta", "text": "hello"})


async def heard(way: Way, raw: str) -> Completed:
    with ModelServer([{"fault": {"raw": raw}}]) as server:
        model = way.model(server)
        try:
            return await ask(model, [user("hi")])
        finally:
            await model.close()


async def refused(way: Way, raw: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await heard(way, raw)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    return caught.value


@ways
@pytest.mark.parametrize(
    "body",
    [
        "",
        "upstream connect error",
        "[]",
        "[1]",
        "null",
        '"no"',
        "{}",
        '{"detail": "welcome"}',
        "{cut",
        "[" * 100_000,
        "9" * 5_000,
        events("[" * 100_000),
        events("9" * 5_000),
        events('{"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": 1e999}}'),
        events([], 3, "null"),
        ": only a comment\n\n",
    ],
    ids=lambda body: body[:30],
)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain"])
async def test_c15_f03_a_body_that_is_no_answer(way: Way, body: str, kind: str) -> None:
    assert (await refused(way, http(body, {"content-type": kind}))).kind == "broken_stream"


@ways
async def test_f03_a_login_page_is_named(way: Way) -> None:
    page = "<!DOCTYPE html><html><head><title>Hotel Wi-Fi</title></head>" + "x" * 100_000
    for headers in ({"content-type": "text/html"}, SSE, {}):
        error = await refused(way, http(page, headers))
        assert error.retryable
        assert "HTML page (Hotel Wi-Fi)" in error.message
        assert "base URL" in error.hint


@ways
async def test_a_body_that_is_not_compressed_as_it_says(way: Way) -> None:
    error = await refused(way, http("not gzip at all", {**SSE, "content-encoding": "gzip"}))
    assert error.kind == "broken_stream"
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert (await refused(way, http("not gzip", headers, "500 Oops"))).retryable


@ways
async def test_chunks_that_are_none(way: Way) -> None:
    raw = http("zz\r\nnonsense\r\n", {**SSE, "transfer-encoding": "chunked"})
    assert (await refused(way, raw)).kind == "broken_stream"


@ways
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400, "type": "BadRequestError", "message": "no"}, "invalid_request"),
        ({"code": 401, "message": "no"}, "auth"),
        ({"code": 404, "message": "no"}, "not_found"),
        ({"code": "429", "message": "slow down"}, "rate_limited"),
        ({"code": 502, "message": "upstream"}, "overloaded"),
        ({"type": "not_found_error", "message": "model: nope"}, "not_found"),
        ({"type": "request_too_large", "message": "no"}, "context_overflow"),
        ({"code": "context_length_exceeded", "message": "no"}, "context_overflow"),
        ({"code": "insufficient_quota", "message": "no"}, "auth"),
        ({"message": "something odd"}, "broken_stream"),
        ({"message": "no capacity"}, "overloaded"),
        ({"type": "invalid_request_error", "message": "timeout: not allowed"}, "invalid_request"),
        ({"code": "odd", "type": "authentication_error", "message": "capacity"}, "auth"),
        ({"message": "503 of 404 tools failed"}, "broken_stream"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_c12_c21_an_error_object_with_status_200(way: Way, error: dict[str, Any], kind: str) -> None:
    body = {"error": error}
    assert (await refused(way, http(json.dumps(body), {"content-type": "application/json"}))).kind == kind
    assert (await refused(way, http(events(body)))).kind == kind


@pytest.mark.parametrize(
    ("body", "text", "stop"),
    [
        (events(delta(content="hello"), {"choices": None}, delta("stop"), "[DONE]"), "hello", "end_turn"),
        (events(delta(content="hello"), {"choices": []}, "[DONE]"), "hello", "end_turn"),
        (events(delta(content="hello"), delta("eos_token")), "hello", "end_turn"),
        (events(delta("stop", content=[{"type": "text", "text": "hello"}])), "hello", "end_turn"),
        ("\ufeff".encode().decode("latin-1") + events(delta("stop", content="hello")), "hello", "end_turn"),
        (events(delta("length", content="hello")), "hello", "max_tokens"),
        (json.dumps({"choices": [{"message": {"content": "hello"}}]}), "hello", "end_turn"),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain"])
async def test_a_chat_answer_in_any_guise(body: str, text: str, stop: str, kind: str) -> None:
    done = await heard(CHAT, http(body, {"content-type": kind}))
    assert (done.message.text, done.stop, done.usage) == (text, stop, Usage())


@pytest.mark.parametrize("finish", ["error", "abort", "cancelled"])
async def test_c15_a_server_that_owns_up_to_a_broken_answer(finish: str) -> None:
    error = await refused(CHAT, http(events(delta(content="hel"), delta(finish), "[DONE]")))
    assert error.kind == "broken_stream"


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": -5, "completion_tokens": "many", "prompt_tokens_details": None},
        {"prompt_tokens": None, "prompt_tokens_details": {"cached_tokens": 9}},
    ],
)
async def test_usage_that_cannot_be_counts_as_nothing(usage: dict[str, Any]) -> None:
    done = await heard(CHAT, http(events(delta("stop", content="ok"), {"choices": [], "usage": usage})))
    assert (done.usage.input, done.usage.output) == (0, 0)
    done = await heard(ANTHROPIC, http(claude(WORDS, input_tokens=-3, output_tokens=None)))
    assert (done.message.text, done.usage) == ("hello", Usage())


async def test_c05_arguments_for_a_block_nobody_began() -> None:
    piece = {"type": "input_json_delta", "partial_json": "{}"}
    stray = {"type": "content_block_delta", "index": 7, "delta": piece}
    assert (await refused(ANTHROPIC, http(events(stray)))).kind == "broken_stream"
    assert (await refused(ANTHROPIC, http(claude((WORDS[0], piece))))).kind == "broken_stream"
    named = {"index": 3, "function": {"arguments": "{}"}}
    done = await heard(CHAT, http(events(delta(tool_calls=[named]), delta("tool_calls"))))
    (made,) = done.message.tool_calls
    assert (made.name, made.arguments) == ("", {})


async def test_c21_a_full_window_is_no_output_limit() -> None:
    done = await heard(ANTHROPIC, http(claude(WORDS, stop="model_context_window_exceeded")))
    assert (done.stop, done.message.text) == ("context_full", "hello")


async def test_an_incomplete_response_is_no_success() -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "hel"}]}
    body: dict[str, object] = {"status": "cancelled", "output": [item]}
    assert (await refused(RESPONSES, http(json.dumps(body)))).kind == "broken_stream"
    body = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [item]}
    assert (await heard(RESPONSES, http(json.dumps(body)))).stop == "max_tokens"


@ways
async def test_c05_names_that_no_tool_can_have_go_back_as_ones_that_can(way: Way) -> None:
    """Providers refuse such a name in every later request: it would brick the conversation."""
    names = ("", "functions.LS", "读取 文件", "x" * 300)
    with ModelServer([turn("", *[call(name, path=".") for name in names]), turn("ok")]) as server:
        model = way.model(server)
        done = await ask(model, [user("hi")])
        assert [item.name for item in done.message.tool_calls] == list(names)
        await ask(model, [user("hi"), done.message, answers(done.message)])
        await model.close()
        assert server.violations == []
        sent = json.dumps(server.requests[1].body)
    for name in ("functions_LS", '"unnamed"', '"_____"', '"' + "x" * 64 + '"'):
        assert name in sent


@given(st.text(max_size=80))
def test_a_plain_name_is_one_that_every_provider_takes(name: str) -> None:
    plain = plain_name(name)
    assert 0 < len(plain) <= 64
    assert plain.isascii()
    assert plain_name(plain) == plain


async def test_c10_thinking_of_a_model_of_the_same_name_elsewhere_stays_there() -> None:
    script = [turn("", call("LS", path="."), thinking="why")]
    with ModelServer([*script, turn("ok")]) as server:
        model = CHAT.model(server, "vllm/qwen")
        first = (await ask(model, [user("hi")])).message
        await model.close()
        other = CHAT.model(server, "lmstudio/qwen", LMSTUDIO_BASE_URL=server.url)
        results = Message("tool", (ToolResult(first.tool_calls[0].id, (Text("out"),)),), "agent")
        await ask(other, [user("hi"), first, results])
        await other.close()
        assert "why" not in json.dumps(server.requests[1].body)


def response(*items: Any, output: Any = (), **more: Any) -> str:
    """A stream of the Responses API that gives `items`, then `output` as the whole."""
    made = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(items)
    ]
    done = {"status": "completed", "output": list(output), **more}
    return events(*made, {"type": "response.completed", "response": done})


def text_item(text: Any) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": text}]}


@pytest.mark.parametrize(
    ("way", "body"),
    [
        (ANTHROPIC, claude(WORDS).replace('"end_turn"', "[1]")),
        (RESPONSES, response(None)),
        (RESPONSES, response({})),
        (RESPONSES, response(output=["no item"])),
        (RESPONSES, response({"type": "message", "content": "hello"})),
        (RESPONSES, response(text_item(5))),
        (RESPONSES, response({"type": "function_call", "arguments": 5})),
        (RESPONSES, response({"type": "reasoning", "summary": "hm"})),
        (RESPONSES, response(text_item("a")).replace('"output_index": 0', '"output_index": {}')),
        (CHAT, events(delta("stop", content="hello"), "[DONE]").replace('"stop"', "[1]")),
        (CHAT, events(delta(tool_calls=[{"index": []}]), delta("stop"))),
        (
            CHAT,
            events(
                *[delta(tool_calls=[{"index": 0, "function": {"name": name}}]) for name in ("", 7)],
                delta("stop"),
            ),
        ),
    ],
    ids=range(12),
)
async def test_c15_an_answer_of_another_shape_is_broken_and_no_bug(way: Way, body: str) -> None:
    assert (await refused(way, http(body))).kind == "broken_stream"


@pytest.mark.parametrize(
    ("way", "body"),
    [
        (ANTHROPIC, claude(WORDS) + events({"type": "error", "error": {"type": "api_error"}}, "{cut")),
        (ANTHROPIC, claude(WORDS, input_tokens=10**400, output_tokens=1e308)),
        (ANTHROPIC, claude(WORDS).replace('"index": 0', '"index": null')),
        (RESPONSES, response(text_item("hello"), usage={"input_tokens": 10**400}) + "data: {cut\n\n"),
        (RESPONSES, events({"type": "response.output_text.delta", "delta": "hello"}) + response()),
        (CHAT, events(delta("stop", content="hello"), {"usage": {"prompt_tokens": 1e308}}, "[DONE]", "{cut")),
    ],
    ids=range(6),
)
async def test_c15_what_is_odd_beside_a_finished_answer_does_no_harm(way: Way, body: str) -> None:
    done = await heard(way, http(body))
    assert (done.message.text, done.usage) == ("hello", Usage())


async def test_c05_items_and_blocks_that_share_a_number_are_all_kept_once() -> None:
    look = {"type": "function_call", "call_id": "c1", "name": "LS", "arguments": {"path": "."}}
    items = [text_item("I look."), look]
    body = response(*items, output=items).replace('"output_index": 1', '"output_index": 0')
    done = await heard(RESPONSES, http(body))
    assert [item.arguments for item in done.message.tool_calls] == [{"path": "."}]
    assert done.message.text == "I look."
    second = ({"type": "text", "text": ""}, {"type": "text_delta", "text": " again"})
    used = {"type": "tool_use", "id": "t1", "name": "LS", "input": {"path": "a"}}
    written = (used, {"type": "input_json_delta", "partial_json": '{"path": "b"}'})
    body = claude(WORDS, second, written).replace('"index": 1', '"index": 0')
    done = await heard(ANTHROPIC, http(body))
    assert [block.text for block in done.message.blocks if isinstance(block, Text)] == ["hello", " again"]
    assert [item.arguments for item in done.message.tool_calls] == [{"path": "b"}]


@ways
async def test_c05_ids_that_a_provider_would_refuse_go_to_none(way: Way) -> None:
    """One of them would brick the conversation: OpenAI takes 40 characters, nobody half a pair."""
    ids = ("x" * 41, "chatcmpl-tool-0123456789abcdef0123456789abcdef", "a b/c", "\ud800", "good_1")
    asked = Message("assistant", tuple(ToolCall(call_id, "LS", {}) for call_id in ids))
    with ModelServer([turn("ok")]) as server:
        model = way.model(server)
        await ask(model, [user("hi"), asked, answers(asked)])
        await model.close()
        assert server.violations == []
        (sent,) = server.requests
    assert all((json.dumps(call_id) in json.dumps(sent.body)) == (call_id == "good_1") for call_id in ids)
    assert CallIds(()).take("\ud800") == "?"  # it is also shown, and written to streams


async def test_events_are_the_same_however_lines_end_and_pieces_are_cut() -> None:
    text = "\ufeff: note\n\nevent: a\ndata: größer 偏\ndata:好 🎉\n\n\nid: 1\ndata: {}\n\ndata: last"
    wanted = [("a", "größer 偏\n好 🎉"), ("", "{}"), ("", "last")]
    for end in ("\n", "\r\n", "\r"):
        body = text.replace("\n", end).encode()
        for size in (1, 2, 3, 7, len(body)):

            async def pieces(body: bytes = body, size: int = size) -> AsyncIterator[bytes]:
                for at in range(0, len(body), size):
                    yield body[at : at + size]

            assert [event async for event in read_events(pieces())] == wanted, (end, size)


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_an_event_without_end_is_not_collected_for_ever(end: bytes) -> None:
    piece = b"data: " + b"x" * 1_000_000 + end

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield piece

    with pytest.raises(ValueError, match="too long"):
        await anext(read_events(endless()))
