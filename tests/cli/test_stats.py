"""What requests took: `letta stats`, by model and by turn, also of turns that failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.harness import Letta
from tests.model_server import ModelServer

PRICED, UNPRICED = "anthropic/claude-sonnet-5-5", "anthropic/claude-sonnet-4-6"


def test_tokens_cost_and_cache_hits_by_model_and_by_turn(letta: Letta, tmp_path: Path) -> None:
    def usage(*numbers: int) -> dict[str, int]:
        return dict(zip(("input", "output", "cache_read", "cache_write"), numbers, strict=True))

    script = [
        {"text": "One.", "usage": usage(1_000, 100, 0, 500)},
        {"text": "Two.", "usage": usage(100, 10, 1_900, 0)},
        {"text": "No.", "stop": "refusal", "usage": usage(50, 5, 2_000, 0)},
        {"text": "Three.", "usage": usage(7, 7, 0, 0)},
        {"text": "Four.", "usage": usage(1, 1, 0, 0)},
        {"text": "half of it and", "fault": {"drop": "mid", "times": 1}},
        {"text": "Five.", "usage": usage(2, 2, 0, 0)},
    ]
    with ModelServer(script) as server:
        letta.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x"}
        assert letta("stats").out == "no request was answered yet\n"
        assert letta("-p", "-m", PRICED, "one").code == 0
        assert letta("-p", "-c", "two").code == 0
        assert letta("-p", "-c", "three").code == 1
        assert letta("-p", "-c", "-m", UNPRICED, "again").code == 0
        first = letta("conversations", "list", "--json").json[0]["id"]
        assert letta("-p", "-c", "--fork", "-m", PRICED, "a copy").code == 0
        assert letta("-p", "-c", "broken").code == 0
        server.assert_finished()
    data = letta("stats", "--json").json
    priced, unpriced = data["models"]
    assert (priced["model"], unpriced["model"]) == (PRICED, UNPRICED)
    assert priced["usage"] == usage(1_153, 118, 3_900, 500)
    assert priced["cache_hit"] == round(3_900 / 5_553, 4)
    assert priced["cost_usd"] == pytest.approx((1_153 * 2 + 118 * 10 + 3_900 * 0.1 + 500 * 2.5) / 1e6)
    assert (unpriced["cost_usd"], unpriced["unpriced"]) == (None, [UNPRICED])
    assert data["total"]["requests"] == 6
    assert data["total"]["cost_usd"] == priced["cost_usd"]
    assert data["total"]["unpriced"] == [UNPRICED]
    assert (data["conversations"], data["broken_off"]) == (2, 1)
    turns = letta("stats", "--conversation", first, "--json").json["turns"]
    assert [(turn["ended"], turn["requests"]) for turn in turns] == [
        *(("success", 1), ("success", 1), ("error", 1), ("success", 1))
    ]
    assert turns[2]["usage"] == usage(50, 5, 2_000, 0)
    shown = letta("stats").out
    assert f"? no price is known for {UNPRICED}" in shown
    assert "what 1 answer that broke off took is not known" in shown
    assert "2 conversations" in shown
    table = letta("stats", "--conversation", first[:12]).out
    assert "95%" in table
    assert "error" in table
    copy = letta("conversations", "list", "--json").json[0]["id"]
    assert letta("stats", "--conversation", copy, "--json").json["total"]["requests"] == 2
    assert letta("stats", "--since", "2100-01-01").out == "no request was answered yet\n"
    assert letta("stats", "--project", ".", "--json").json == data
    assert letta("stats", "--agent", "letta", "--json").json == data
    for words, code in (
        (("--since", "soon"), 2),
        (("--project", str(tmp_path)), 1),
        (("--conversation", first, "--agent", "letta"), 2),
        (("--conversation", "conv-0"), 1),
    ):
        assert letta("stats", *words).code == code, words
    transcript = next(letta.home.glob(f"data/conversations/*/*/{first}.jsonl"))
    odd = {"kind": "assistant", "turn": 1, "at": "2100", "sent": {"model": "x/y"}, "usage": {"input": "many"}}
    with transcript.open("a") as file:
        file.write(json.dumps(odd) + "\n" + "{torn")
    assert letta("stats", "--json").json == data
