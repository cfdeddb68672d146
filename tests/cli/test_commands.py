"""`letta agents`, `memory`, `config`, `doctor`: what they print and change."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Letta


@pytest.fixture
def memory(letta: Letta) -> Path:
    """The memory folder of a fresh agent."""
    assert letta("agents", "create", "--name", "letta", "--block", "human=Likes tea.").code == 0
    return Path(letta("memory", "path").out.strip())


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_agents_are_created_listed_shown_and_deleted(letta: Letta) -> None:
    made = letta("agents", "create", "--name", "reviewer", "--model", "openai/x", "--block", "notes/a=One.")
    assert made.code == 0
    agent = made.out.strip()
    assert letta("agents", "create", "--name", "reviewer").code == 2
    (listed,) = letta("agents", "list", "--json").json
    assert (listed["id"], listed["name"], listed["model"]) == (agent, "reviewer", "openai/x")
    assert "reviewer" in letta("agents", "list").out
    shown = letta("agents", "show", "reviewer", "--json").json
    assert shown["id"] == agent
    assert len(shown["memory_revision"]) == 40
    assert letta("memory", "show", "notes/a").out.endswith("One.\n")
    near = letta("agents", "show", "reviwer")
    assert near.code == 1
    assert "reviewer" in near.err
    refused = letta("agents", "delete", "reviewer")
    assert refused.code == 2
    assert letta("agents", "delete", "reviewer", "--yes").code == 0
    assert letta("agents", "list", "--json").json == []
    assert Path(shown["memory"]).is_dir()


def test_a_draft_is_status_and_diff_until_it_is_committed_and_can_be_reverted(
    letta: Letta, memory: Path
) -> None:
    human = memory / "system" / "human.md"
    before = human.read_text()
    human.write_text(before.replace("tea", "coffee"))
    assert "modified" in letta("memory", "status").out
    assert letta("memory", "status", "--json").json["drafts"] == [
        {"path": "system/human.md", "state": "modified"}
    ]
    assert "+Likes coffee." in letta("memory", "diff").out
    assert letta("memory", "show", "system/human.md").out == before
    made = letta("memory", "commit", "-m", "She changed her mind")
    assert made.code == 0, made.err
    assert letta("memory", "status").out == ""
    assert "Likes coffee." in letta("memory", "show", "system/human.md").out
    assert letta("memory", "show", "HEAD~1:system/human.md").out == before
    log = letta("memory", "log", "--json").json
    assert [commit["reason"] for commit in log] == ["She changed her mind", "Start memory"]
    assert log[0]["paths"] == ["system/human.md"]
    assert log[0]["trailers"]["Letta-Source"] == "user-stated"
    assert "+Likes coffee." in letta("memory", "diff", "HEAD~1", "HEAD", "--json").json["diff"]
    assert letta("memory", "revert", log[0]["revision"][:10]).code == 0
    assert letta("memory", "show", "system/human.md").out == before
    assert human.read_text() == before
    assert letta("memory", "log", "-n", "1", "system/human.md").out.count("Revert") == 1


def test_nothing_to_commit_and_unknown_revisions_are_said_in_one_line(letta: Letta, memory: Path) -> None:
    for words in (("commit", "-m", "x"), ("revert", "nope"), ("show", "nope.md"), ("diff", "nope")):
        done = letta("memory", *words)
        assert done.code == 1, words
        assert done.err.startswith("letta: "), words
        assert "Traceback" not in done.err


def test_what_a_person_commits_with_git_is_in_the_log(letta: Letta, memory: Path) -> None:
    (memory / "notes.md").write_text("---\ndescription: notes\n---\nx\n")
    git(memory, "add", "notes.md")
    git(memory, "commit", "-q", "-m", "by hand")
    assert letta("memory", "log", "--json").json[0]["author"]["name"] == "Ada"


def test_control_characters_in_names_reach_no_terminal(letta: Letta, memory: Path) -> None:
    name = "bad\x1b[31m\nname.md"
    (memory / name).write_text("---\ndescription: odd\n---\nx\n")
    status = letta("memory", "status").out
    assert "\x1b" not in status
    assert "bad\\x1b[31m\\nname.md" in status
    (draft,) = letta("memory", "status", "--json").json["drafts"]
    assert draft["path"] == name
    assert "\x1b" not in letta("memory", "diff").out


def test_b08_any_character_is_printed_in_any_locale(letta: Letta, memory: Path) -> None:
    (memory / "system" / "偏好.md").write_text("---\ndescription: ĳ\n---\nĳ 偏好\n")
    assert letta("memory", "commit", "-m", "ĳ").code == 0
    for env in ({"LC_ALL": "C"}, {"PYTHONIOENCODING": "gbk"}, {"PYTHONIOENCODING": "ascii:strict"}):
        done = letta("memory", "diff", "HEAD~1", "HEAD", env=env)
        assert done.code == 0, (env, done.err)
        assert "+description" in done.out


def test_e12_inherited_git_variables_do_not_redirect_memory(letta: Letta, memory: Path) -> None:
    (letta.project / "file").write_text("mine")
    (memory / "system" / "human.md").write_text("---\ndescription: who\n---\nNew.\n")
    env = {
        "GIT_DIR": str(letta.project / ".git"),
        "GIT_INDEX_FILE": str(letta.project / ".git" / "index"),
        "GIT_WORK_TREE": str(letta.project),
        "GIT_OBJECT_DIRECTORY": str(letta.project / ".git" / "objects"),
    }
    before = sorted(str(path) for path in letta.project.rglob("*"))
    assert letta("memory", "commit", "-m", "from a hook", env=env).code == 0
    assert sorted(str(path) for path in letta.project.rglob("*")) == before
    assert letta("memory", "log", "--json", env=env).json[0]["reason"] == "from a hook"


def test_settings_are_set_and_read_and_secrets_masked(letta: Letta) -> None:
    assert letta("config", "set", "providers.openai.api_key", "-", stdin="sk-0123456789abcdef\n").code == 0
    assert letta("config", "set", "permissions.allow", '["Bash(ls:*)"]').code == 0
    everything = letta("config", "get").out
    assert "sk-0123456789" not in everything
    assert letta("config", "get", "providers.openai.api_key").out == "…cdef\n"
    assert json.loads(letta("config", "get", "permissions.allow").out) == ["Bash(ls:*)"]
    path = Path(letta("config", "path").out.strip())
    assert json.loads(path.read_text())["providers"]["openai"]["api_key"] == "sk-0123456789abcdef"
    assert os.stat(path).st_mode & 0o777 == 0o600
    bad = letta("config", "set", "permissions.defaultMode", "yolo")
    assert bad.code == 2
    assert letta("config", "get", "model").code == 2
    assert "sk-0123456789" not in letta("models").out


def test_doctor_names_a_damaged_memory_and_the_cure(letta: Letta, memory: Path) -> None:
    env = {"ANTHROPIC_API_KEY": "x"}
    good = letta("doctor", env=env)
    assert good.code == 0, good.out
    assert "agent letta: memory at" in good.out
    os.rename(memory.parent / "repo.git", memory.parent / "gone.git")
    bad = letta("doctor", env=env)
    assert bad.code == 1
    assert "BAD" in bad.out
    assert str(memory.parent) in bad.out


def test_context_shows_the_next_prompt_with_its_key(letta: Letta, memory: Path) -> None:
    plain = letta("context", "--prompt")
    assert plain.code == 0, plain.err
    assert "Likes tea." in plain.out
    (memory / "system" / "human.md").write_text("---\ndescription: who\n---\nA draft.\n")
    assert letta("context", "--prompt").out == plain.out
    described = letta("context", "--json").json
    assert described["prompt"] == plain.out
    assert described["key"]["revision"] == letta("memory", "log", "--json").json[0]["revision"]
    assert letta("context", "--turn", "1").code == 1
