"""What `letta context` and `letta doctor` say of memory's size and scopes."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import Letta
from tests.model_server import ModelServer

CL100K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"


@pytest.fixture
def memory(letta: Letta) -> Path:
    """The memory folder of a fresh agent, with an overview of this project and of another one."""
    made = letta("agents", "create", "--name", "letta", "--model", "anthropic/claude-sonnet-5-5")
    assert made.code == 0, made.err
    memory = Path(letta("memory", "path").out.strip())
    slug = letta("context", "--json").json["memory"]["project"]["slug"]
    for name, words in ((slug, "Uses pnpm."), ("other-1", "Uses yarn.")):
        file = memory / "projects" / name / "overview.md"
        file.parent.mkdir(parents=True)
        file.write_text(f"---\ndescription: What {name} is.\n---\n{words}\n")
    assert letta("memory", "commit", "-m", "two projects").code == 0
    return memory


def test_e29_context_shows_both_scopes_with_sizes(letta: Letta, memory: Path) -> None:
    shown = letta("context")
    assert shown.code == 0
    assert "this project   projects/project-" in shown.out
    assert "overview.md, about " in shown.out
    assert "Uses pnpm." not in letta("context", "--prompt").out  # it goes with the first message
    data = letta("context", "--json").json["memory"]
    assert data["project"]["files"] == 1
    assert data["project"]["overview_tokens"] > 5
    assert data["total"] == sum(file["tokens"] for file in data["files"])
    assert abs(sum(file["share"] for file in data["files"]) - 1) < 0.01
    assert data["warnings"] == []


def test_the_window_is_split_into_parts_that_add_up(letta: Letta, memory: Path) -> None:
    (letta.project / "AGENTS.md").write_text("Run make check before you commit.\n" * 20)
    call = {"name": "LS", "arguments": {"path": "."}}
    with ModelServer(
        [{"text": "I look.", "tool_calls": [call]}, {"text": "Done.", "repeat": True}]
    ) as server:
        letta.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x"}
        assert letta("-p", "what is here?").code == 0
        told = server.requests[-1].body
    window = letta("context", "--json").json["window"]
    parts = {part["name"]: part for part in window["parts"]}
    assert window["model"] == "anthropic/claude-sonnet-5-5"
    assert window["measured"] is True
    assert window["assumed"] is False
    assert window["overflow"] is None
    assert sum(part["tokens"] for part in parts.values()) == window["total"]
    assert window["total"] + window["reserved"] + window["free"] == window["size"] == 1_000_000
    assert {item["name"] for item in parts["tools"]["items"]} == {tool["name"] for tool in told["tools"]}
    for name in ("base prompt", "core memory", "external tree", "skills", "tools", "project notes"):
        assert parts[name]["tokens"] > 0, name
    kinds = {item["name"]: item["tokens"] for item in parts["messages"]["items"]}
    assert min(kinds[kind] for kind in ("yours", "answers", "tool calls", "tool results", "reminders")) > 0
    assert kinds["thinking"] == kinds["memory updates"] == parts["summary"]["tokens"] == 0
    plain = letta("context", env={"COLUMNS": "120"}).out
    assert "\x1b" not in plain
    assert "as the last answer's usage says" in plain
    for width in (24, 39, 41, 200):
        shown = letta("context", env={"COLUMNS": str(width)}).out
        assert "█ core memory" in shown
        assert "    system/" in shown
        assert max(map(len, shown.splitlines())) <= width, shown


def test_e39_what_is_in_the_prompt_is_sent_and_the_rest_is_listed(letta: Letta, memory: Path) -> None:
    (memory / "system" / "human.md").write_text("---\ndescription: The person.\n---\nLikes tea.\n")
    assert letta("memory", "commit", "-m", "tea").code == 0
    prompt = letta("context", "--prompt").out
    assert "Likes tea." in prompt
    assert "other-1" in prompt
    assert "overview.md — What other-1 is." in prompt
    assert "Uses yarn." not in prompt


def test_e24_doctor_and_context_name_what_is_cut_or_over_budget(letta: Letta, memory: Path) -> None:
    (memory / "system" / "index.md").write_text("".join(f"{n:04} {'word ' * 90}\n" for n in range(300)))
    overview = next(memory.glob("projects/project-*/overview.md"))
    overview.write_text(
        "---\ndescription: Long.\n---\n" + "one line of forty characters, about that\n" * 1000
    )
    assert letta("memory", "commit", "-m", "large").code == 0
    told = letta("doctor").out
    assert "system/index.md is cut in the prompt" in told
    assert "overview.md is cut in conversations: 8,000 of " in told
    assert letta("config", "set", "memory.budget", "0.01").code == 0
    assert "BAD  letta: system/: about " in letta("doctor").out
    assert "warning: system/ takes about " in letta("context").out


def test_a_system_prompt_that_fills_the_window_is_named_before_a_chat_begins(
    letta: Letta, memory: Path
) -> None:
    small = letta("agents", "create", "--name", "small", "--model", "ollama/tiny")
    assert small.code == 0, small.err
    folder = Path(letta("memory", "path", "--agent", "small").out.strip())
    assert letta("context", "--agent", "small", "--json").json["window"]["overflow"] is None
    (folder / "system" / "facts.md").write_text("---\ndescription: d\n---\n" + "one more fact. " * 8_000)
    assert letta("memory", "commit", "--agent", "small", "-m", "large").code == 0
    shown = letta("context", "--agent", "small").out
    assert "warning: the system prompt and the tools take about " in shown
    assert "system/facts.md (" in shown
    assert "core memory" in letta("context", "--agent", "small", "--json").json["window"]["overflow"]
    assert "BAD  small: the system prompt and the tools take" in letta("doctor").out


def test_before_the_first_answer_a_vocabulary_that_is_here_counts_and_nothing_is_fetched(
    letta: Letta, vocabularies: Path
) -> None:
    made = letta("agents", "create", "--name", "old", "--model", "openai/gpt-4")
    assert made.code == 0, made.err
    memory = Path(letta("memory", "path").out.strip())
    (memory / "system" / "greeting.md").write_text("---\ndescription: d\n---\n" + "안녕하세요 세계 " * 500)
    assert letta("memory", "commit", "-m", "greeting").code == 0

    def window(**env: str) -> dict[str, Any]:
        found: dict[str, Any] = letta("context", "--json", env=env).json["window"]
        return found

    estimated = window()
    assert (estimated["measured"], estimated["tokenizer"]) == (False, None)
    sizes = {item["name"]: item["tokens"] for part in estimated["parts"] for item in part["items"]}
    assert sizes["system/greeting.md"] < 3_000
    counted = letta("context", env={"COLUMNS": "120", "TIKTOKEN_CACHE_DIR": str(vocabularies)}).out
    assert "counted with cl100k_base: no answer yet" in counted
    greeting = re.search(r"system/greeting.md +([\d,]+)", counted)
    assert greeting is not None
    assert int(greeting[1].replace(",", "")) - 4_002 in range(30)  # the text alone is 4,002 tokens
    damaged = letta.project.parent / CL100K
    damaged.write_bytes((vocabularies / CL100K).read_bytes()[:-1_000])
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        there = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        assert window(TIKTOKEN_CACHE_DIR=str(damaged.parent), HTTPS_PROXY=there) == estimated
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert damaged.exists()  # tiktoken would have deleted it and asked
    letta.environment |= {"TIKTOKEN_CACHE_DIR": str(vocabularies), "OPENAI_API_KEY": "x"}
    with ModelServer([{"text": "Hello."}]) as server:
        assert letta("-p", "hello", env={"OPENAI_BASE_URL": f"{server.url}/v1"}).code == 0
    told = window()
    assert (told["measured"], told["tokenizer"]) == (True, None)
