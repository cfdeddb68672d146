"""Strict mode: what each provider refuses, and what it must not refuse. Asked through the real SDKs."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.model_server import Dialect, ModelServer, call, request_prefix, sign, turn
from tests.model_server.clients import DIALECTS, MODEL, Answer, client

EVERY = pytest.mark.parametrize("dialect", DIALECTS)
BAD_REQUEST = (anthropic.BadRequestError, openai.BadRequestError)
MARK = {"type": "ephemeral"}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content) if content else "hello"}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "LS", "input": {}, **more}


def result(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "fine", **more}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def thought(words: str, signature: str | None) -> dict[str, Any]:
    made = {"type": "thinking", "thinking": words}
    return made if signature is None else made | {"signature": signature}


def refused(dialect: Dialect, messages: list[Any], more: dict[str, Any], **options: Any) -> str:
    """Why the server refused, as the SDK's exception and the server's record both say."""
    with ModelServer([turn("Yes.")], **options) as server, client(server, dialect) as ask:
        with pytest.raises(BAD_REQUEST) as caught:
            ask(messages, **more)
        (problem,) = server.violations
        assert [item.index for item in server.remaining] == [0]
    assert problem in str(caught.value)
    return problem


def accepted(dialect: Dialect, messages: list[Any], more: dict[str, Any], **options: Any) -> None:
    with ModelServer([turn("Yes.")], **options) as server, client(server, dialect) as ask:
        assert ask(messages, **more).text == "Yes."
    server.assert_finished()


A_USE = said(use())
MARKED = [text(str(number), cache_control=MARK) for number in range(5)]
ANTHROPIC_REFUSES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("tool_use` ids were found without `tool_result", [user(), A_USE, user(text("hi"))], {}),
    ("tool_use` ids were found without", [user(), A_USE, user(text("hi"), result())], {}),
    ("tool_use` ids were found without", [user(), said(use("a"), use("b")), user(result("a"))], {}),
    ("without `tool_result` blocks immediately after", [user(), A_USE, user(), user(result())], {}),
    ("unexpected `tool_use_id`", [user(result())], {}),
    ("unexpected `tool_use_id`", [user(), A_USE, user(result(), result("b"))], {}),
    ("must have a single result", [user(), A_USE, user(result(), result())], {}),
    ("ids must be unique", [user(), A_USE, user(result()), A_USE, user(result())], {}),
    ("ids must be unique", [user(), said(use(), use()), user(result())], {}),
    ("text content blocks must be non-empty", [user(text(""))], {}),
    ("text content blocks must be non-empty", [user(), said(text(""), use()), user(result())], {}),
    ("must contain non-whitespace text", [user(text(" \n"))], {}),
    ("must contain non-whitespace text", [user(), said(text("\n")), user()], {}),
    ("system: text content blocks must be non-empty", [user()], {"system": [text("")]}),
    ("cache_control cannot be set for empty text blocks", [user(text("", cache_control=MARK))], {}),
    ("A maximum of 4 blocks with cache_control", [user(*MARKED)], {}),
    ("A maximum of 4 blocks", [user(*MARKED[:2])], {"system": MARKED[:3]}),
    ("does not support assistant message prefill", [user(), said(text("I"))], {}),
    ("first message must use", [said(text("I")), user()], {}),
    ("at least one message", [], {}),
    ("must have non-empty content", [{"role": "user", "content": []}], {}),
    ("max_tokens: Input should be greater", [user()], {"max_tokens": 0}),
    (
        "must be greater than `thinking.budget_tokens`",
        [user()],
        {"thinking": {"type": "enabled", "budget_tokens": 1000}},
    ),
    ("signature: Field required", [user(), said(thought("hm", None), text("I")), user()], {}),
    ("Invalid `signature`", [user(), said(thought("hm", ""), text("I")), user()], {}),
    ("Invalid `signature`", [user(), said(thought("hm", sign(MODEL, "h")), text("I")), user()], {}),
    (
        "Invalid `signature`",
        [user(), said(thought("hm", sign("claude-opus-5", "hm")), text("I")), user()],
        {},
    ),
    (
        "a system message must follow a user turn",
        [user(), said(text("I")), {"role": "system", "content": "s"}],
        {},
    ),
    (
        "role 'system' is not supported",
        [user(), {"role": "system", "content": "s"}],
        {"model": "claude-opus-4-7"},
    ),
    ("messages.1.role: Input should be", [user(), {"role": "tool", "content": "x"}], {}),
    ("tool_use.name: String should match", [user(), said(use(name="L S")), user(result())], {}),
    ("tool_use.id: String should match", [user(), said(use("a.b")), user(result("a.b"))], {}),
    ("input: Input should be a valid dictionary", [user(), said(use(input="x")), user(result())], {}),
    ("content must be non-empty", [user(), A_USE, user(result(content=""))], {}),
    ("content must be non-empty", [user(), A_USE, user(result(content=[]))], {}),
    ("must be non-empty", [user(), A_USE, user(result(content=[text("")]))], {}),
    ("text.parsed_output: Extra inputs", [user(), said(text("I", parsed_output=None)), user()], {}),
    ("`tool_use` blocks can only be in `assistant`", [user(use())], {}),
    ("`tool_result` blocks can only be in `user`", [user(), A_USE, said(result()), user()], {}),
    ("Input tag 'input_text'", [user({"type": "input_text", "text": "x"})], {}),
    ("name: String should match", [user()], {"tools": [{"name": "L S", "input_schema": {"type": "object"}}]}),
    (
        "Tool names must be unique",
        [user()],
        {"tools": [{"name": "L", "input_schema": {"type": "object"}}] * 2},
    ),
    (
        "input_schema.type: Input should be 'object'",
        [user()],
        {"tools": [{"name": "L", "input_schema": {"type": "string"}}]},
    ),
    ("input_schema.type: Field required", [user()], {"tools": [{"name": "L", "input_schema": {}}]}),
    ("input_schema: Field required", [user()], {"tools": [{"name": "L"}]}),
]


@pytest.mark.parametrize(("problem", "messages", "more"), ANTHROPIC_REFUSES)
def test_anthropic_refuses(problem: str, messages: list[Any], more: dict[str, Any]) -> None:
    assert problem in refused("anthropic", messages, more)


def test_anthropic_needs_a_token_limit() -> None:
    with (
        ModelServer([]) as server,
        anthropic.Anthropic(base_url=server.url, api_key="x") as sdk,
        pytest.raises(anthropic.BadRequestError, match="max_tokens: Field required"),
    ):
        sdk.post("/v1/messages", cast_to=object, body={"model": MODEL, "messages": [user()]})


@pytest.mark.parametrize(
    ("messages", "more"),
    [
        ([user(), user()], {}),
        ([user(), said(text("I"), use("a"), use("b")), user(result("b"), result("a"), text("go"))], {}),
        ([user(), said(thought("hm", sign(MODEL, "hm")), use()), user(result(is_error=True))], {}),
        ([user(), said(thought("hm", "foreign"), text("I")), user()], {}),
        ([user(), A_USE, user(result()), {"role": "system", "content": "news"}], {}),
        ([user(), {"role": "system", "content": "s"}], {"model": "claude-opus-4-8"}),
        ([user(*MARKED[:2])], {"system": MARKED[:2]}),
        (
            [user(text("x", cache_control=None))],
            {"tools": [{"name": "L", "input_schema": {"type": "object"}}]},
        ),
        ([user(), said(use(input={"cache_control": MARK})), user(result())], {"system": MARKED[:4]}),
    ],
)
def test_anthropic_accepts(messages: list[Any], more: dict[str, Any]) -> None:
    accepted("anthropic", messages, more, trusted=["foreign"])


def made(call_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "LS", "arguments": "{}", **more}}


def called(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def answer(call_id: str = "a", content: Any = "fine") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def function(**more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "LS", "parameters": {"type": "object"}} | more}


CHAT_REFUSES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("must be followed by tool messages", [user(), called(made())], {}),
    ("must be followed by tool messages", [user(), called(made()), user(), answer()], {}),
    ("did not have response messages: b", [user(), called(made("a"), made("b")), answer("a"), user()], {}),
    ("must be a response to", [user(), answer()], {}),
    ("must be a response to", [user(), called(made()), answer(), answer()], {}),
    ("must be a response to", [user(), called(made()), answer("b"), answer("a")], {}),
    ("expected a string, got null", [{"role": "user", "content": None}], {}),
    ("expected a string, got null", [user(), {"role": "assistant", "content": None}, user()], {}),
    ("Supported values are", [{"role": "person", "content": "x"}], {}),
    ("empty array", [{"role": "user", "content": []}], {}),
    ("expected a non-empty string", [user(text(""))], {}),
    ("'messages': empty array", [], {}),
    ("'tools': empty array", [user()], {"tools": []}),
    (
        "tool_calls': empty array",
        [user(), {"role": "assistant", "content": "I", "tool_calls": []}, user()],
        {},
    ),
    ("duplicate ids", [user(), called(made(), made()), answer(), answer()], {}),
    ("tool_calls[0].id", [user(), called(made("")), answer("")], {}),
    ("maximum length 40", [user(), called(made("x" * 41)), answer("x" * 41)], {}),
    ("expected a string", [user(), called(made(arguments={})), answer()], {}),
    ("function.arguments", [user(), called(made(arguments='{"a')), answer()], {}),
    ("not a JSON object", [user(), called(made(arguments="[]")), answer()], {}),
    ("does not match pattern", [user(), called(made(name="L S")), answer()], {}),
    ("does not match pattern", [user()], {"tools": [function(name="L.S")]}),
    ("Duplicate function name", [user()], {"tools": [function(), function()]}),
    ("got 'type: \"None\"'", [user()], {"tools": [function(parameters={})]}),
]


@pytest.mark.parametrize(("problem", "messages", "more"), CHAT_REFUSES)
def test_chat_refuses(problem: str, messages: list[Any], more: dict[str, Any]) -> None:
    assert problem in refused("openai-chat", messages, more)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "s"}, user(), user(text("x")), {"role": "system", "content": "news"}],
        [user(), called(made("a"), made("b")), answer("b"), answer("a", ""), user()],
        [user(), called(made(), content="I look."), answer(content=[text("x")])],
    ],
)
def test_chat_accepts(messages: list[Any]) -> None:
    accepted("openai-chat", messages, {"tools": [function()]})


def test_a_chat_template_wants_roles_to_alternate() -> None:
    system = {"role": "system", "content": "s"}
    strict = {"strict_alternation": True}
    assert "must alternate" in refused("openai-chat", [system, user(), user()], {}, **strict)
    assert "at the beginning" in refused(
        "openai-chat", [user(), called(made()), answer(), system], {}, **strict
    )
    accepted("openai-chat", [system, user(), called(made()), answer(), user()], {}, **strict)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_c11_reasoning_must_come_back_with_its_calls(field: str) -> None:
    script = [turn("", call("LS", "a"), thinking="hm"), turn("Done.")]
    options: dict[str, Any] = {"reasoning_field": field, "require_reasoning_echo": True}
    with ModelServer(script, **options) as server, client(server, "openai-chat") as ask:
        assert ask().calls == [("a", "LS", {})]
        for wrong in ({}, {field: "h"}):
            with pytest.raises(openai.BadRequestError, match="must be passed back"):
                ask([user(), called(made(), **wrong), answer()])
        assert ask([user(), called(made(), **{field: "hm"}), answer()]).text == "Done."


def item(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


FC = item("function_call", call_id="a", name="LS", arguments="{}")
FCO = item("function_call_output", call_id="a", output="fine")
I_SAY = {"role": "assistant", "content": "I"}


def reasoning(words: str, secret: str | None, name: str = "rs_1") -> dict[str, Any]:
    return item(
        "reasoning", id=name, summary=[{"type": "summary_text", "text": words}], encrypted_content=secret
    )


RS = reasoning("hm", sign(MODEL, "hm"))
RESPONSES_REFUSES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("No tool output found for function call a", [user(), FC], {}),
    ("No tool call found", [user(), FCO], {}),
    ("No tool call found", [user(), FCO, FC], {}),
    ("Duplicate function call", [user(), FC, FC, FCO], {}),
    ("Duplicate output", [user(), FC, FCO, FCO], {}),
    ("Duplicate item found with id fc_1", [user(), FC | {"id": "fc_1"}, FCO | {"id": "fc_1"}], {}),
    ("begins with 'fc'", [user(), FC | {"id": "toolu_1"}, FCO], {}),
    ("string too long", [user(), FC | {"call_id": "a" * 65}, FCO | {"call_id": "a" * 65}], {}),
    ("arguments': expected a string", [user(), FC | {"arguments": {}}, FCO], {}),
    (".name': string does not match", [user(), FC | {"name": "L S"}, FCO], {}),
    (".call_id'", [user(), FC | {"call_id": ""}, FCO], {}),
    (".output'", [user(), FC, item("function_call_output", call_id="a")], {}),
    ("without its required following item", [user(), RS], {}),
    ("without its required following item", [user(), RS, user()], {}),
    (
        "without its required following item",
        [user(), RS, FC | {"id": "fc_abcr1"}, FCO, reasoning("", "x", "rs_abc")],
        {},
    ),
    ("without its required 'reasoning' item: 'rs_abc'", [user(), FC | {"id": "fc_abcr1"}, FCO], {}),
    ("could not be verified", [user(), reasoning("hm", sign(MODEL, "h")), I_SAY, user()], {}),
    ("could not be verified", [user(), reasoning("hm", sign("gpt-6", "hm")), I_SAY, user()], {}),
    ("Items are not persisted", [user(), reasoning("hm", None), I_SAY, user()], {}),
    ("Items are not persisted", [user(), item("item_reference", id="msg_1")], {}),
    ("content': it is empty", [{"role": "user", "content": ""}], {}),
    ("text': it is empty", [user(item("input_text", text=""))], {}),
    ("Invalid value: 'text'", [user(text("x"))], {}),
    ("Invalid value: 'input_text'", [said(item("input_text", text="x")), user()], {}),
    ("Invalid value: 'person'", [{"role": "person", "content": "x"}], {}),
    ("Invalid value: 'tool_result'", [user(), item("tool_result")], {}),
    ("parameter: 'input'", [], {}),
    ("Previous response", [user()], {"previous_response_id": "resp_1"}),
    (
        "got 'type: \"array\"'",
        [user()],
        {"tools": [item("function", name="L", parameters={"type": "array"})]},
    ),
]


@pytest.mark.parametrize(("problem", "messages", "more"), RESPONSES_REFUSES)
def test_responses_refuses(problem: str, messages: list[Any], more: dict[str, Any]) -> None:
    assert problem in refused("openai-responses", messages, more)


@pytest.mark.parametrize(
    "messages",
    [
        [user(), RS, FC, FCO],
        [user(item("input_text", text="x")), RS, I_SAY, user()],
        [user(), reasoning("hm", "foreign"), I_SAY, {"role": "developer", "content": "news"}],
        [user(), FC, FC | {"call_id": "b"}, FCO | {"call_id": "b"}, FCO],
    ],
)
def test_responses_accepts(messages: list[Any]) -> None:
    accepted("openai-responses", messages, {}, trusted=["foreign"])


def next_messages(dialect: Dialect, before: list[Any], got: Answer) -> list[Any]:
    """The conversation with the answer `got` and a result for each of its calls."""
    results = [call_id for call_id, _, _ in got.calls]
    if dialect == "anthropic":
        blocks = [
            {key: value for key, value in block.items() if key != "raw"} for block in got.raw["content"]
        ]
        return [*before, {"role": "assistant", "content": blocks}, user(*map(result, results))]
    if dialect == "openai-chat":
        return [*before, got.raw, *map(answer, results)]
    return [*before, *got.raw, *(FCO | {"call_id": call_id} for call_id in results)]


@EVERY
def test_what_a_server_issued_is_accepted_by_every_server(dialect: Dialect) -> None:
    script = [turn("I look.", call("LS", path="."), call("LS", path="b"), thinking="hm")]
    messages: list[Any] = [user()]
    bodies = []
    for _ in range(3):
        with ModelServer(script) as server, client(server, dialect) as ask:
            messages = next_messages(dialect, messages, ask(messages, stream=False))
        server.assert_finished()
        bodies.append(server.requests[0].body)
    first, second, third = (request_prefix(body, dialect) for body in bodies)
    assert second[: len(first)] == first
    assert third[: len(second)] == second


@EVERY
def test_a_loose_server_takes_anything(dialect: Dialect) -> None:
    accepted(dialect, [{"role": "person", "content": None}], {}, strict=False)


def test_the_prefix_has_no_cache_marks_and_keeps_the_order() -> None:
    body = {
        "model": "m",
        "messages": [user(text("a", cache_control=MARK)), {"content": "b", "role": "user"}],
        "system": [text("s", cache_control=MARK)],
        "tools": [{"name": "LS", "cache_control": MARK}],
    }
    assert request_prefix(body, "anthropic") == [
        '[{"name": "LS"}]',
        '[{"type": "text", "text": "s"}]',
        '{"role": "user", "content": [{"type": "text", "text": "a"}]}',
        '{"content": "b", "role": "user"}',
    ]
    assert request_prefix({"instructions": "é", "input": "hi"}, "openai-responses") == ["null", '"é"', '"hi"']
    assert request_prefix({"messages": [{"role": "system"}]}, "openai-chat") == ["null", '{"role": "system"}']
