"""Compaction through the real program: one result that fills the window, by hand, and an agent's settings."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.harness import Here, Letta
from tests.model_server import ModelServer, call, turn

WINDOW = 13_000
SUMMARY = turn("Goal: count to 9.", when={"anywhere": "You write the summary"}, repeat=True)
LONG = "What was counted was counted well, and what was not is still to come. " * 60


def of(kind: str, out: str) -> list[dict[str, Any]]:
    return [item for line in out.splitlines() if (item := json.loads(line))["type"] == kind]


def test_c19_a_result_that_fills_the_window_and_compaction_by_hand(letta: Letta, here: Here) -> None:
    counting = call("Bash", command="seq -f 'a long line that is number %g' 20000")
    script = [turn("I count.", counting), turn("Counted."), turn(LONG), turn("Going on."), SUMMARY]
    with ModelServer(script, window=WINDOW, reported_window=WINDOW) as server:
        letta.environment["VLLM_BASE_URL"] = server.url
        unasked = ("-p", "-m", "vllm/scripted", "--permission-mode", "bypassPermissions")
        done = here(*unasked, "--output-format", "stream-json", "Count.")
        assert done.code == 0, done.err
        (compacted,) = of("compacted", done.out)
        assert (compacted["trigger"], compacted["mode"]) == ("preflight", "shortened")
        (result,) = of("result", done.out)
        conversation = result["conversation_id"]
        assert here("-p", "-c", "More.").code == 0

        made = here("conversations", "compact", conversation[:13], "Mind the numbers.", "--json")
        assert made.code == 0, made.err
        assert made.json["conversation_id"] == conversation
        assert made.json["compacted"]["trigger"] == "manual"
        assert made.json["compacted"]["summary"] == "Goal: count to 9."
        assert "Mind the numbers." in server.requests[-1].raw.decode()
        assert "summarised" in made.err
        assert here("-p", "-c", "Go on.").out == "Going on.\n"
        assert "Goal: count to 9." in server.requests[-1].raw.decode()
        shown = here("conversations", "show", conversation).out
        assert "number 20000" in shown
        before, _, after = shown.partition("── compacted (sliding_window, manual, ")
        assert "More." in before
        assert "Goal: count to 9." in after
        assert "Go on." in after
        assert (server.violations, server.oversized) == ([], [])


def test_an_agents_settings_are_shown_changed_checked_and_used(letta: Letta, here: Here) -> None:
    assert here("agents", "create", "--name", "letta").code == 0
    usual = here("agents", "compaction", "--json").json
    assert usual == {"mode": "sliding_window", "threshold": 0.9, "keep": 0.3, "model": "", "prompt": ""}
    prompt = letta.project / "how.md"
    prompt.write_text("Summarise as a haiku.\n")
    given = ("--mode", "all", "--threshold", "0.5", "--model", "vllm/small", "--prompt", "how.md")
    changed = here("agents", "compaction", *given, "--json").json
    assert (changed["mode"], changed["threshold"], changed["prompt"]) == ("all", 0.5, "Summarise as a haiku.")
    for wrong in (("--mode", "some"), ("--threshold", "0"), ("--keep", "2"), ("--model", "small")):
        refused = here("agents", "compaction", *wrong)
        assert refused.code == 2
        assert "compaction." in refused.err
    assert here("agents", "compaction", "letta", "--json").json == changed

    haiku = turn("Old frog, a splash.", when={"anywhere": "haiku"})
    with ModelServer([turn(LONG), turn(LONG), turn("Yes."), haiku]) as server:
        letta.environment["VLLM_BASE_URL"] = server.url
        first = here("-p", "-m", "vllm/scripted", "--output-format", "json", "One.")
        conversation = first.json["conversation_id"]
        made = here("conversations", "compact", conversation)
        assert made.out == "Old frog, a splash.\n", made.err
        assert server.requests[-1].body["model"] == "small"
        (state,) = (letta.home / "data" / "agents").rglob("agent.json")
        data = json.loads(state.read_text())
        data["compaction"] = {"mode": 7, "clip_chars": 5}
        state.write_text(json.dumps(data))
        warned = here("-p", "-c", "Two.")
        assert warned.code == 0
        assert "compaction.mode is 7" in warned.err
        server.script.take("", "", "")
        assert server.violations == []
    assert here("agents", "compaction", "--reset", "--json").json == usual
