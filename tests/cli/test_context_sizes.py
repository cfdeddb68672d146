"""What `letta context` and `letta doctor` say of memory's size and scopes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import Letta


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
    assert "every project  system/: about " in shown.err
    assert "█" in shown.err
    assert "this project   projects/project-" in shown.err
    assert "overview.md, about " in shown.err
    assert "Uses pnpm." not in shown.out  # it goes with the first message, not with the prompt
    data = letta("context", "--json").json["memory"]
    assert data["project"]["files"] == 1
    assert data["project"]["overview_tokens"] > 5
    assert data["total"] == sum(file["tokens"] for file in data["files"])
    assert abs(sum(file["share"] for file in data["files"]) - 1) < 0.01
    assert data["warnings"] == []


def test_e39_what_is_in_the_prompt_is_sent_and_the_rest_is_listed(letta: Letta, memory: Path) -> None:
    (memory / "system" / "human.md").write_text("---\ndescription: The person.\n---\nLikes tea.\n")
    assert letta("memory", "commit", "-m", "tea").code == 0
    prompt = letta("context").out
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
    assert "warning: system/ takes about " in letta("context").err
