"""The scripted model server, seen by the real SDKs in every dialect, streaming and not."""

from __future__ import annotations

import threading
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.model_server import Dialect, ModelServer, call, sign, turn
from tests.model_server.clients import DIALECTS, MODEL, USER, client

STATUS_ERROR: tuple[type[anthropic.APIStatusError | openai.APIStatusError], ...] = (
    anthropic.APIStatusError,
    openai.APIStatusError,
)
API_ERROR: tuple[type[anthropic.APIError | openai.APIError], ...] = (anthropic.APIError, openai.APIError)
EVERY = pytest.mark.parametrize("dialect", DIALECTS)
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
STOPS = {
    "end_turn": ("end_turn", "completed", "stop"),
    "tool_use": ("tool_use", "completed", "tool_calls"),
    "max_tokens": ("max_tokens", "max_output_tokens", "length"),
    "refusal": ("refusal", "completed", "content_filter"),
}


def stop_word(stop: str, dialect: Dialect) -> str:
    return STOPS[stop][DIALECTS.index(dialect)]


@EVERY
@BOTH
def test_a_turn_arrives_whole(dialect: Dialect, stream: bool) -> None:
    said = turn(
        "Ich lese 文件.",
        call("Read", file_path="ä.py", limit=3),
        call("LS", "call_own", path="."),
        thinking="First I read. " * 9,
        usage={"input": 100, "output": 20, "cache_read": 800, "cache_write": 50},
    )
    with ModelServer([said]) as server, client(server, dialect) as ask:
        answer = ask(stream=stream)
    assert answer.text == "Ich lese 文件."
    assert answer.thinking == "First I read. " * 9
    assert [(name, arguments) for _, name, arguments in answer.calls] == [
        ("Read", {"file_path": "ä.py", "limit": 3}),
        ("LS", {"path": "."}),
    ]
    assert answer.calls[1][0] == "call_own"
    assert answer.calls[0][0] not in ("", "call_own")
    assert answer.stop == stop_word("tool_use", dialect)
    assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (950, 800, 20)
    if dialect != "openai-chat":
        assert answer.signature == sign(MODEL, answer.thinking)
    server.assert_finished()
    assert [request.dialect for request in server.requests] == [dialect]
    assert server.requests[0].body["model"] == MODEL


@EVERY
@pytest.mark.parametrize("stop", sorted(STOPS))
def test_stop_reasons(dialect: Dialect, stop: str) -> None:
    with ModelServer([turn("So.", stop=stop)] * 2) as server, client(server, dialect) as ask:
        answers = [ask(stream=stream) for stream in (True, False)]
    if stop != "tool_use" or dialect != "openai-responses":
        assert [answer.stop for answer in answers] == [stop_word(stop, dialect)] * 2
    assert [answer.text for answer in answers] == ["So."] * 2


@EVERY
@BOTH
def test_an_empty_turn(dialect: Dialect, stream: bool) -> None:
    with ModelServer([{}]) as server, client(server, dialect) as ask:
        answer = ask(stream=stream)
    assert (answer.text, answer.calls, answer.stop) == ("", [], stop_word("end_turn", dialect))


@EVERY
def test_chunk_is_the_size_of_the_deltas(dialect: Dialect) -> None:
    with ModelServer([turn("x" * 60, chunk=1), turn("x" * 60)]) as server, client(server, dialect) as ask:
        fine, coarse = ask(), ask()
    assert fine.text == coarse.text == "x" * 60
    assert fine.deltas - coarse.deltas == 60 - 3


@EVERY
def test_a_delay_between_the_chunks_changes_nothing_else(dialect: Dialect) -> None:
    with ModelServer([turn("slow", delay=0.001)]) as server, client(server, dialect) as ask:
        assert ask().text == "slow"


@EVERY
@BOTH
@pytest.mark.parametrize("raw", ['{"path": "a', "[]", "null", '"s"', '{"a": "\t"}', "x" * 2000])
def test_c05_broken_arguments_arrive_as_they_were_written(dialect: Dialect, stream: bool, raw: str) -> None:
    script = [{"tool_calls": [{"name": "Read", "raw": raw}]}]
    with ModelServer(script) as server, client(server, dialect) as ask:
        ((_, name, arguments),) = ask(stream=stream).calls
    assert name == "Read"
    assert not isinstance(arguments, dict)


@EVERY
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 503, 529])
def test_c12_a_status_comes_with_the_providers_error(dialect: Dialect, status: int) -> None:
    fault = {"status": status, "headers": {"retry-after": "2"}, "message": "as scripted"}
    with (
        ModelServer([{"fault": fault}]) as server,
        client(server, dialect) as ask,
        pytest.raises(STATUS_ERROR) as caught,
    ):
        ask()
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "2"
    assert "as scripted" in str(caught.value)
    assert isinstance(caught.value.body, dict)


@EVERY
def test_a_gateway_answers_html(dialect: Dialect) -> None:
    script: list[dict[str, Any]] = [
        {"fault": {"status": 502}},
        {"fault": {"status": 503, "body": {"odd": 1}}},
    ]
    with ModelServer(script) as server, client(server, dialect) as ask:
        with pytest.raises(STATUS_ERROR) as caught:
            ask()
        assert caught.value.response.text.startswith("<html>")
        with pytest.raises(STATUS_ERROR) as caught:
            ask()
        assert caught.value.response.json() == {"odd": 1}


def cut_turn(place: str, how: str) -> dict[str, Any]:
    return turn(
        "I write." * 20,
        call("Write", file_path="a", content="x" * 50),
        thinking="so so " * 20,
        fault={"drop": place, "how": how},
    )


@EVERY
@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("place", ["before", "after_headers", "mid", "in_tool", "in_thinking"])
def test_c15_a_dropped_connection_is_a_transport_error(dialect: Dialect, place: str, how: str) -> None:
    with ModelServer([cut_turn(place, how), turn("Again.")]) as server, client(server, dialect) as ask:
        with pytest.raises(Exception, match=r"(?i)connection|peer|reset|disconnected|read"):
            ask()
        assert ask().text == "Again."
    server.assert_finished()


@EVERY
@pytest.mark.parametrize("place", ["after_headers", "mid", "in_tool", "in_thinking"])
def test_c15_a_stream_that_just_ends_has_no_stop_reason(dialect: Dialect, place: str) -> None:
    with ModelServer([cut_turn(place, "eof"), turn("Again.")]) as server, client(server, dialect) as ask:
        cut = ask()
        assert ask().text == "Again."
    assert cut.stop == ""
    assert (cut.text == "I write." * 20) is (place == "in_tool")
    assert cut.signature in (None, "", sign(MODEL, "so so " * 20))
    if place == "in_thinking":
        assert not cut.signature


@EVERY
@pytest.mark.parametrize("place", ["before", "after_headers", "mid"])
@pytest.mark.parametrize("how", ["reset", "close", "eof"])
def test_an_answer_without_streaming_is_cut_too(dialect: Dialect, place: str, how: str) -> None:
    with ModelServer([cut_turn(place, how), turn("Again.")]) as server, client(server, dialect) as ask:
        with pytest.raises((anthropic.APIConnectionError, openai.APIConnectionError)):
            ask(stream=False)
        assert ask(stream=False).text == "Again."


@EVERY
@pytest.mark.parametrize("after", [None, 0, 2])
def test_c15_a_stall_ends_with_the_clients_patience(dialect: Dialect, after: int | None) -> None:
    fault = {"stall": "forever"} | ({} if after is None else {"after": after})
    script = [turn("never", fault=fault), turn("Here.")]
    with ModelServer(script) as server, client(server, dialect, timeout=0.3) as ask:
        with pytest.raises(Exception, match=r"(?i)timed? ?out"):
            ask()
        server.wait_for_disconnects()
        assert ask().text == "Here."
    assert server.disconnects == 1


@EVERY
def test_a_short_stall_goes_on(dialect: Dialect) -> None:
    script = [turn("late", fault={"stall": 0.02}), turn("later", fault={"stall": 0.02, "after": 2})]
    with ModelServer(script) as server, client(server, dialect) as ask:
        assert [ask().text, ask().text, server.disconnects] == ["late", "later", 0]


@EVERY
def test_closing_the_server_ends_a_stalled_answer(dialect: Dialect) -> None:
    outcome: list[BaseException] = []
    server = ModelServer([turn("never", fault={"stall": "forever", "after": 1})]).start()

    def wait() -> None:
        with client(server, dialect) as ask:
            try:
                ask()
            except (anthropic.APIError, openai.APIError, httpx2.TransportError) as error:
                outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    server.wait_for_requests(1)
    server.close()
    waiting.join(20)
    assert len(outcome) == 1
    assert not waiting.is_alive()


@EVERY
def test_garbage_in_the_stream(dialect: Dialect) -> None:
    event = "event: content_block_delta\ndata: {no json" if dialect == "anthropic" else True
    script = [turn("a" * 100, fault={"garbage": event})]
    with (
        ModelServer(script) as server,
        client(server, dialect) as ask,
        pytest.raises(ValueError, match=r"(?i)expecting|json"),
    ):
        ask()


@EVERY
@pytest.mark.parametrize("form", ["event", "failed"])
def test_an_error_inside_the_stream(dialect: Dialect, form: str) -> None:
    fault = {"event_error": "overloaded_error", "form": form}
    with (
        ModelServer([turn("a" * 100, fault=fault)]) as server,
        client(server, dialect) as ask,
        pytest.raises(API_ERROR, match="Overloaded") as caught,
    ):
        ask()
    word = "overloaded_error" if dialect == "anthropic" else "server_is_overloaded"
    assert word in str(caught.value.body)


@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses"])
@BOTH
def test_c10_thinking_without_a_signature(dialect: Dialect, stream: bool) -> None:
    script = [turn("So.", thinking="hm", fault={"no_signature": True})]
    with ModelServer(script) as server, client(server, dialect) as ask:
        answer = ask(stream=stream)
    assert (answer.thinking, answer.signature) == ("hm", "")


@EVERY
@BOTH
@pytest.mark.parametrize("wrong", ["duplicate", "missing"])
def test_call_ids_may_be_wrong(dialect: Dialect, stream: bool, wrong: str) -> None:
    script = [turn("", call("LS", path="a"), call("LS", path="b"), fault={"call_ids": wrong})]
    with ModelServer(script) as server, client(server, dialect) as ask:
        first, second = ask(stream=stream).calls
    assert first[0] == second[0]
    assert (first[0] == "") is (wrong == "missing")
    assert [first[2], second[2]] == [{"path": "a"}, {"path": "b"}]


@EVERY
def test_a_stream_in_latin_1(dialect: Dialect) -> None:
    script = [turn("caf\xe9", fault={"wrong_encoding": True})]
    with ModelServer(script) as server, client(server, dialect) as ask:
        try:
            text = ask().text
        except UnicodeDecodeError:
            text = "refused"
    assert text != "caf\xe9"


@EVERY
def test_a_fault_may_repeat(dialect: Dialect) -> None:
    script = [{"fault": {"status": 529, "times": 3}}, turn("At last.")]
    with ModelServer(script) as server, client(server, dialect) as ask:
        for left in (2, 2, 1):
            with pytest.raises(STATUS_ERROR):
                ask()
            assert len(server.remaining) == left
        assert ask().text == "At last."
    server.assert_finished()
    assert len(server.wait_for_requests(4)) == 4


@EVERY
def test_more_requests_than_turns(dialect: Dialect) -> None:
    with ModelServer([turn("One.")]) as server, client(server, dialect) as ask:
        ask()
        with pytest.raises((anthropic.BadRequestError, openai.BadRequestError), match="script is exhausted"):
            ask()
    with pytest.raises(AssertionError, match="script is exhausted"):
        server.assert_finished()


def test_turns_that_were_not_played_are_missed() -> None:
    script = [turn("One."), turn("Two."), turn("Perhaps.", optional=True), turn("Always.", repeat=True)]
    with ModelServer(script) as server, client(server, "anthropic") as ask:
        ask()
    assert [item.index for item in server.remaining] == [1, 3]
    with pytest.raises(AssertionError, match="not played"):
        server.assert_finished()


def test_turns_may_be_chosen_by_what_the_request_says() -> None:
    script = [
        turn("plain"),
        turn("a result", when={"contains": "42"}),
        turn("for b", when={"anywhere": "conversation b", "model": "claude"}, repeat=True),
        turn("never", when={"model": "gpt"}),
    ]
    result = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "it is 42"}]}
    with ModelServer(script, strict=False) as server, client(server, "anthropic") as ask:
        assert ask([{"role": "user", "content": [result]}]).text == "a result"
        assert ask(system="this is conversation b").text == "for b"
        assert ask(system="this is conversation b").text == "for b"
        assert ask().text == "plain"
        with pytest.raises(anthropic.BadRequestError, match="exhausted"):
            ask()


def test_parallel_conversations_share_a_server() -> None:
    names = [f"conversation {number}." for number in range(8)]
    script = [turn(f"for {name}", when={"contains": name}) for name in names]
    heard: dict[str, str] = {}
    with ModelServer(script) as server, client(server, "anthropic") as ask:

        def talk(name: str) -> None:
            heard[name] = ask([{"role": "user", "content": name}]).text

        threads = [threading.Thread(target=talk, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert heard == {name: f"for {name}" for name in names}
    server.assert_finished()


def test_a_loop_and_an_echo() -> None:
    script = [turn("One."), {"echo": True}]
    with ModelServer(script, loop=True) as server, client(server, "openai-chat") as ask:
        assert [ask().text for _ in range(4)] == ["One.", "You said: hello"] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"txt": "x"},
        {"stop": "done"},
        {"fault": {"drop": "later"}},
        {"fault": {"colour": "red"}},
        {"when": {"has": "x"}},
        {"tool_calls": [{"name": "LS", "args": {}}]},
    ],
)
def test_a_mistake_in_a_script_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="turn 1 of the script: "):
        ModelServer([{}, wrong])


def test_the_base_url_works_without_v1() -> None:
    with (
        ModelServer([turn("Here.")] * 2) as server,
        openai.OpenAI(base_url=server.url, api_key="x", max_retries=0) as sdk,
    ):
        made = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert made.choices[0].message.content == "Here."
        assert sdk.responses.create(model="m", input="hi").output_text == "Here."


def test_model_lists_and_the_reported_window() -> None:
    with ModelServer([], models=["one", "two"], reported_window=4096) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x") as sdk:
            models = {model.id: model.to_dict() for model in sdk.models.list()}
            shown: Any = sdk.post("/../api/show", cast_to=object, body={"model": "one"})
            props: Any = sdk.get("/../props", cast_to=object)
        with anthropic.Anthropic(base_url=server.url, api_key="x") as other:
            assert [(model.id, model.max_input_tokens) for model in other.models.list()] == [
                ("one", 4096),
                ("two", 4096),
            ]
    assert list(models) == ["one", "two"]
    assert models["one"]["max_model_len"] == 4096
    assert shown["model_info"]["llama.context_length"] == 4096
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert server.requests == []
    assert {request.path for request in server.lookups} >= {"/v1/models", "/api/show", "/props"}


@EVERY
def test_c23_a_server_that_dropped_most_of_the_prompt(dialect: Dialect) -> None:
    with ModelServer([turn("Hm.")], prompt_tokens=17) as server, client(server, dialect) as ask:
        assert ask().prompt_tokens == 17


@EVERY
def test_a_wrong_key_is_refused(dialect: Dialect) -> None:
    with (
        ModelServer([turn("Hm.")], api_key="secret") as server,
        client(server, dialect) as ask,
        pytest.raises((anthropic.AuthenticationError, openai.AuthenticationError)),
    ):
        ask()
    with ModelServer([turn("Hm.")], api_key="x") as server, client(server, dialect) as ask:
        assert ask().text == "Hm."


def test_waiting_for_requests_that_do_not_come() -> None:
    with ModelServer([]) as server:
        with pytest.raises(TimeoutError, match="0 of 1"):
            server.wait_for_requests(1, timeout=0.01)
        with pytest.raises(TimeoutError, match="0 of 1"):
            server.wait_for_disconnects(timeout=0.01)


def test_a_fault_that_cannot_happen_is_a_mistake_of_the_script() -> None:
    script = [turn("no tool here", fault={"drop": "in_tool"})]
    server = ModelServer(script).start()
    with client(server, "anthropic") as ask, pytest.raises(anthropic.APIConnectionError):
        ask(USER)
    with pytest.raises(ValueError, match="nothing for in_tool"):
        server.close()
