"""Each dialect against the strict scripted server, through the real SDK."""

from __future__ import annotations

import itertools
import json

import pytest

from letta_code.core.messages import Image, Message, Text, Thinking, ToolResult
from letta_code.models.base import Completed, TextPart, ThinkingPart, ToolCallPart
from tests.model_server import ModelServer, call, request_prefix, turn
from tests.models.support import CHAT, WAYS, Way, answers, ask, converse, parts, user

pytestmark = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.dialect)


async def test_text_thinking_and_parallel_calls_arrive_in_order(way: Way) -> None:
    script = [
        turn("I look: 中文.", call("LS", path="."), call("Read", file_path="偏好.md"), thinking="Hmm, 好.")
    ]
    with ModelServer(script) as server:
        model = way.model(server)
        seen = await parts(model, [user("hi")])
        await model.close()
    done = seen[-1]
    assert isinstance(done, Completed)
    assert (
        "".join(part.text for part in seen if isinstance(part, TextPart))
        == done.message.text
        == "I look: 中文."
    )
    assert "".join(part.text for part in seen if isinstance(part, ThinkingPart)) == "Hmm, 好."
    first, second = done.message.tool_calls
    assert [part.call_id for part in seen if isinstance(part, ToolCallPart)] == [first.id, second.id]
    assert (first.name, first.arguments) == ("LS", {"path": "."})
    assert (second.name, second.arguments) == ("Read", {"file_path": "偏好.md"})
    assert isinstance(done.message.blocks[0], Thinking)
    assert done.stop == "tool_use"
    assert done.usage.input > 0
    assert done.usage.output > 0


async def test_usage_separates_cached_tokens(way: Way) -> None:
    usage = {"input": 10, "output": 7, "cache_read": 500, "cache_write": 0}
    done, _ = await converse(way, [turn("ok", usage=usage)], [user("hi")])
    assert (done.usage.input, done.usage.output, done.usage.cache_read) == (10, 7, 500)


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
async def test_c21_stop_reasons(way: Way, stop: str) -> None:
    done, _ = await converse(way, [turn("ok", stop=stop)], [user("hi")])
    assert done.stop == stop


async def test_requests_grow_only_at_their_end_and_are_deterministic(way: Way) -> None:
    script = [turn("a", call("LS", path="."), thinking="t1"), turn("b", thinking="t2"), turn("c"), turn("c")]
    with ModelServer(script) as server:
        model = way.model(server)
        messages = [user("hi", "more")]
        for _ in range(2):
            done = await ask(model, messages)
            messages.append(done.message)
            messages.append(answers(done.message) if done.message.tool_calls else user("next"))
        await ask(model, messages)
        await model.close()
        again = way.model(server)
        await ask(again, messages)
        await again.close()
        assert server.violations == []
        sent = [request_prefix(item.body, way.dialect) for item in server.requests]
        bodies = [json.dumps(item.body) for item in server.requests]
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    assert bodies[2] == bodies[3]


async def test_c10_thinking_goes_back_to_its_own_model_only(way: Way) -> None:
    with ModelServer(
        [turn("a", call("LS", path="."), thinking="deep thought"), turn("b"), turn("c")]
    ) as server:
        model = way.model(server)
        first = (await ask(model, [user("hi")])).message
        messages = [user("hi"), first, answers(first)]
        await ask(model, messages)
        await model.close()
        other = way.model(server, f"{way.handle.partition('/')[0]}/another-model")
        await ask(other, messages)
        await other.close()
        assert server.violations == []
        assert "deep thought" in json.dumps(server.requests[1].body)
        assert "deep thought" not in json.dumps(server.requests[2].body)


async def test_odd_histories_are_valid(way: Way) -> None:
    foreign = Thinking("x", "anthropic", "other", {"block": {"type": "thinking"}})
    unsigned = Thinking("cut", way.dialect, way.handle.partition("/")[2], None)
    done, _ = await converse(
        way, [turn("", call("LS", "id:odd.1", path="."), call("LS", path="."))], [user("hi")]
    )
    calls = done.message.tool_calls
    histories = [
        # C01: interrupted before any result, then a new prompt.
        [user("hi"), done.message, user("again")],
        # Some results only, in the wrong order, split over messages; a result of no call.
        [
            user("hi"),
            done.message,
            Message("tool", (ToolResult(calls[1].id, (Text("second"),)),), "agent"),
            Message("tool", (ToolResult("nobody", (Text("?"),)), ToolResult(calls[0].id, ())), "agent"),
            user("again"),
        ],
        # C07: empty text everywhere; C10: thinking that cannot go back, alone and beside text.
        [user("hi", ""), Message("assistant", (unsigned, Text("")), "agent"), user("  ", "again")],
        [user("hi"), Message("assistant", (foreign, unsigned, Text("x")), "agent"), user("again")],
        # C14: a partial answer at the end.
        [user("hi"), Message("assistant", (Text("partial"),), "agent")],
        # It begins with the assistant, as after a compaction.
        [Message("assistant", (Text("earlier"),), "agent"), user("again")],
        # Memory updates in every place.
        [Message("system", (Text("update 0"),)), user("hi"), Message("system", (Text("update 1"),))],
        [
            user("hi"),
            *[Message("system", (Text("update"),))] * 2,
            user("b"),
            Message("assistant", (Text("c"),)),
            user("d"),
        ],
        [user("hi"), Message("assistant", (Text("c"),)), Message("system", (Text("update"),)), user("d")],
        # A lone surrogate.
        [user("\ud800 hi")],
    ]
    for history in histories:
        options = {"strict_alternation": True} if way is CHAT else {}
        done, server = await converse(way, [turn("ok")], history, **options)
        assert server.violations == [], history
        assert done.message.text == "ok"


async def test_c07_pictures_and_silent_tools(way: Way) -> None:
    done, _ = await converse(way, [turn("", call("LS", path="."))], [user("hi")])
    picture = Image(
        "image/png",
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=",
    )
    results = Message("tool", (ToolResult(done.message.tool_calls[0].id, (Text(""), picture)),), "agent")
    history = [Message("user", (picture,)), done.message, results]
    _, server = await converse(way, [turn("ok")], history)
    assert server.violations == []
    assert json.dumps(server.requests[0].body).count(picture.data) == 2


async def test_status_of_results_reaches_the_model_in_call_order(way: Way) -> None:
    done, _ = await converse(way, [turn("", *[call("LS", path=str(n)) for n in range(5)])], [user("hi")])
    calls = done.message.tool_calls
    results = tuple(
        ToolResult(item.id, (Text(f"r{n}"),), "denied" if n == 2 else "ok") for n, item in enumerate(calls)
    )
    _, server = await converse(
        way, [turn("ok")], [user("hi"), done.message, Message("tool", results, "agent")]
    )
    assert server.violations == []
    body = json.dumps(server.requests[0].body)
    assert [body.index(f'"r{n}"') for n in range(5)] == sorted(body.index(f'"r{n}"') for n in range(5))


@pytest.mark.parametrize(
    "raw", ['{"path":"a","content":"x', "[]", "null", '"s"', "x" * 200_000, '{"n": NaN}', '{"n": 1e999}']
)
async def test_c05_unreadable_arguments_are_bounded_and_can_go_back(way: Way, raw: str) -> None:
    done, _ = await converse(way, [{"tool_calls": [{"name": "LS", "raw": raw}]}], [user("hi")])
    (bad,) = done.message.tool_calls
    assert bad.arguments is None
    assert bad.problem
    assert bad.raw == raw[:2000]
    _, server = await converse(way, [turn("ok")], [user("hi"), done.message, answers(done.message)])
    assert server.violations == []


async def test_c05_a_raw_tab_inside_a_string_is_understood(way: Way) -> None:
    done, _ = await converse(way, [{"tool_calls": [{"name": "LS", "raw": '{"path": "a\tb"}'}]}], [user("hi")])
    assert done.message.tool_calls[0].arguments == {"path": "a\tb"}


@pytest.mark.parametrize("ids", ["duplicate", "missing"])
async def test_calls_get_unique_ids(way: Way, ids: str) -> None:
    script = [turn("", *[call("LS", path=str(n)) for n in range(3)], fault={"call_ids": ids})]
    done, _ = await converse(way, script, [user("hi")])
    calls = done.message.tool_calls
    assert [item.arguments for item in calls] == [{"path": str(n)} for n in range(3)]
    assert len({item.id for item in calls} - {""}) == 3
    _, server = await converse(way, [turn("ok")], [user("hi"), done.message, answers(done.message)])
    assert server.violations == []


async def test_an_id_of_an_earlier_call_is_not_used_again(way: Way) -> None:
    script = [turn("", call("LS", "call_0", path="a")), turn("", call("LS", "call_0", path="b")), turn("ok")]
    with ModelServer(script) as server:
        model = way.model(server)
        messages = [user("hi")]
        for _ in range(2):
            done = await ask(model, messages)
            messages += [done.message, answers(done.message)]
        await ask(model, messages)
        await model.close()
        assert server.violations == []
    ids = [item.id for message in messages for item in message.tool_calls]
    assert len(set(ids)) == 2
