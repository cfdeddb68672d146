"""`--fallback-model` and broken answers, through the real program and the scripted server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import Here, Letta
from tests.model_server import ModelServer, call, turn

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-test-1234567890", "OPENAI_API_KEY": "sk-test-1234567890"}
HANDLES = ("anthropic/claude-opus-4-8", "openai/gpt-6.2-sol", "vllm/qwen")


def reach(letta: Letta, server: ModelServer) -> None:
    letta.environment |= KEYS | {
        f"{provider}_BASE_URL": server.url for provider in ("ANTHROPIC", "OPENAI", "VLLM")
    }


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    ("main", "spare"), [*zip(HANDLES, HANDLES[1:] + HANDLES[:1], strict=True), ("vllm/qwen", "vllm/small")]
)
def test_c10_c12_the_fallback_answers_in_its_own_dialect_and_thoughts_stay_with_their_model(
    letta: Letta, main: str, spare: str
) -> None:
    first, second = main.partition("/")[2], spare.partition("/")[2]
    script = [
        turn("I look.", call("LS", path="."), thinking="the main one's thought", when={"model": second}),
        turn("Done.", thinking="again", when={"model": second}),
    ]
    known = turn("One.", call("LS", path="."), thinking="first thought")
    busy = {"fault": {"status": 529, "times": 6}}
    with ModelServer([*script, known, turn("Yes."), busy, turn("I am back.")]) as server:
        reach(letta, server)
        both = ("--fallback-model", spare)
        assert letta("-p", "-m", main, *both, "one").out == "Yes.\n"
        fallen = letta("-p", "-c", *both, "--output-format", "stream-json", "two")
        assert fallen.code == 0, fallen.err
        back = letta("-p", "-c", *both, "three")
        assert back.out == "I am back.\n", back.err
        assert server.violations == []
        server.assert_finished()
    used = [line for line in lines(fallen.out) if line["type"] == "fallback_used"]
    assert [(item["model"], item["instead_of"]) for item in used] == [(spare, main)]
    assert lines(fallen.out)[-1]["result"] == "Done."
    models = [request.body["model"] for request in server.requests]
    assert models == [first] * 8 + [second] * 2 + [first]
    sent = [json.dumps(request.body) for request in server.requests]
    assert all("first thought" not in body for body in sent[8:10])
    assert "the main one's thought" not in sent[10]


def test_c12_f03_both_models_fail_in_one_line_and_stdout_is_empty(letta: Letta) -> None:
    with ModelServer([{"fault": {"status": 529, "times": 12}}]) as server:
        reach(letta, server)
        done = letta("-p", "-m", HANDLES[0], "--fallback-model", HANDLES[1], "hi")
        server.assert_finished()
    assert (done.code, done.out) == (75, "")
    (line,) = [line for line in done.err.splitlines() if line.startswith("letta: ")]
    assert f"{HANDLES[0]}: anthropic answered 529" in line
    assert f"the fallback {HANDLES[1]}: openai answered 529" in line


def test_c12_a_server_that_nobody_reaches_is_replaced_at_once_where_it_asks_to_wait(letta: Letta) -> None:
    hour = {"fault": {"status": 429, "headers": {"retry-after": "3600"}}}
    with ModelServer([hour, turn("Here.")]) as server:
        reach(letta, server)
        letta.environment["LETTA_RETRY_BASE_SECONDS"] = "30"
        done = letta("-p", "-m", HANDLES[2], "--fallback-model", HANDLES[0], "hi")
        assert (done.code, done.out) == (0, "Here.\n"), done.err
    assert f"{HANDLES[0]} goes on" in done.err


def test_the_setting_is_checked_used_and_only_warned_of(letta: Letta, here: Here) -> None:
    assert here("config", "set", "fallbackModel", "gpt").code == 2
    assert here("config", "set", "fallbackModel", "openai/gpt-6.2-sol").code == 0
    assert here("config", "get", "fallbackModel").out == "openai/gpt-6.2-sol\n"
    hour = {"fault": {"status": 429, "headers": {"retry-after": "3600"}}}
    with ModelServer([hour, turn("Here."), turn("Yes.")]) as server:
        reach(letta, server)
        assert letta("-p", "-m", HANDLES[2], "hi").out == "Here.\n"
        del letta.environment["OPENAI_API_KEY"], letta.environment["OPENAI_BASE_URL"]
        done = letta("-p", "-m", HANDLES[2], "hi")
        assert (done.code, done.out) == (0, "Yes.\n")
    assert "warning: the fallback model openai/gpt-6.2-sol cannot be used: there is no key" in done.err


@pytest.mark.parametrize(
    ("handle", "code"), [("gpt", 2), ("nobody/x", 2), ("openai/gpt-6.2-sol", 1), ("vllm/qwen", 2)]
)
def test_a_fallback_that_cannot_be_one_is_refused_at_the_start(
    letta: Letta, here: Here, handle: str, code: int
) -> None:
    with ModelServer([]) as server:
        letta.environment |= {"VLLM_BASE_URL": server.url}
        done = here("-p", "-m", "vllm/qwen", "--fallback-model", handle, "hi")
        assert done.code == code
        assert handle.partition("/")[0] in done.err
        assert server.requests == []


@pytest.mark.parametrize("handle", HANDLES)
def test_c15_f03_words_of_a_broken_answer_are_shown_marked_and_never_sent_again(
    letta: Letta, handle: str
) -> None:
    broken = turn("These words broke off in the middle.", fault={"drop": "mid", "how": "eof", "times": 6})
    script = [turn("I look.", call("LS", path=".")), broken, turn("Whole."), turn("Other.", times=2)]
    with ModelServer(script) as server:
        reach(letta, server)
        done = letta("-p", "-m", handle, "--output-format", "json", "one")
        assert done.code == 75
        assert done.json["result"] == "I look."
        assert done.json["partial"].startswith("These words")
        assert letta("-p", "-c", "two").out == "Whole.\n"
        for other in HANDLES:
            if other != handle:
                assert letta("-p", "-c", "-m", other, "three").out == "Other.\n"
        assert server.violations == []
        assert "These words" not in json.dumps([item.body for item in server.requests])
        conversation = done.json["conversation_id"]
        shown = letta("conversations", "show", conversation).out
        listed = letta("conversations", "show", conversation, "--json").json
    assert shown.count("assistant, unfinished  turn 1") == 6
    assert shown.count("broken off here") == 6
    assert shown.index("These words") < shown.index("two") < shown.index("Whole.")
    assert [item["before"] for item in listed["unfinished"]] == [3] * 6


def test_f03_text_on_stdout_is_a_finished_answer_only(letta: Letta, tmp_path: Path) -> None:
    broken = turn("These words broke off.", fault={"drop": "mid", "how": "eof", "times": 6})
    with ModelServer([turn("I look.", call("LS", path=".")), broken]) as server:
        reach(letta, server)
        done = letta("-p", "-m", "vllm/qwen", "one")
    assert (done.code, done.out) == (75, "")
    assert "ended before it was complete" in done.err
