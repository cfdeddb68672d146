from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Done, Here

TOKEN = "ghp_aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3hJ5"


@pytest.fixture
def memory(here: Here) -> Path:
    assert here("agents", "create", "--name", "ada", "-m", "anthropic/claude-sonnet-5-5").code == 0
    return Path(here("memory", "path").out.rstrip("\n"))


def _git(memory: Path, *words: str) -> None:
    done = subprocess.run(
        ["git", "-c", "user.name=P", "-c", "user.email=p@x", *words],
        cwd=memory,
        env={"PATH": os.environ["PATH"], "HOME": str(memory.parent)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _write(memory: Path, path: str, text: str) -> None:
    (memory / path).parent.mkdir(parents=True, exist_ok=True)
    (memory / path).write_text(text)


def test_a_clean_memory_is_said_to_be_clean_with_its_size(here: Here, memory: Path) -> None:
    done = here("memory", "check")
    assert (done.code, done.err) == (0, "nothing is wrong\n")
    lines = done.out.splitlines()
    assert lines[0].startswith("system/ takes about ")
    assert lines[0].endswith("% of the window of 1,000,000:")
    assert {line.split()[-1] for line in lines[1:]} == {
        "system/persona.md",
        "system/human.md",
        "system/project.md",
    }
    size = here("memory", "check", "--json").json["size"]
    assert size["tokens"] == sum(file["tokens"] for file in size["files"]) > 0
    assert size["window"] == 1_000_000


def test_everything_that_is_wrong_is_listed(here: Here, memory: Path) -> None:
    _write(memory, "system/broken.md", "---\nnever closed\n")
    _write(memory, "system/long.md", "---\nlimit: 3\n---\nlonger\n")
    _write(memory, "system/Human.md", "x\n")
    _write(memory, "notes/key.md", f"{TOKEN}\n")
    _write(memory, "notes/twice.md", "---\nowner: a\nowner: b\n---\n")
    _write(memory, "notes/merge.md", "<<<<<<< a\nx\n=======\ny\n>>>>>>> b\n")
    (memory / "system/link.md").symlink_to("human.md")
    _git(memory, "add", "-A")
    _git(memory, "commit", "-qm", "x", "--no-verify")
    _write(memory, "notes/draft.md", "---\n- list\n---\n")
    _git(memory, "checkout", "-q", "--detach")
    (memory.parent / "repo.git/hooks/pre-commit").write_text("#!/bin/sh\n")
    done = here("memory", "check")
    assert done.code == 1
    assert TOKEN[8:] not in done.out + done.err
    sections = _sections(done)
    told = dict(line.split(": ", 1) for line in sections["memory"])
    assert "not closed" in told["system/broken.md"]
    assert "limit is 3" in told["system/long.md"]
    assert "only in case" in told["system/human.md"]
    assert "GitHub token ghp_… in line 1" in told["notes/key.md"]
    assert "'owner' twice" in told["notes/twice.md"]
    assert "conflict markers" in told["notes/merge.md"]
    assert "symbolic link" in told["system/link.md"]
    assert [line.split(":")[0] for line in sections["drafts"]] == ["notes/draft.md"]
    assert "HEAD is detached" in sections["repository"][0]
    assert "pre-commit" in sections["repository"][1]
    found = here("memory", "check", "--json").json
    assert {item["path"] for item in found["problems"]} == set(told)
    assert [item["path"] for item in found["drafts"]] == ["notes/draft.md"]
    assert len(found["repository"]) == 2


def _sections(done: Done) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    name = ""
    for line in done.out.splitlines():
        if line.startswith("  "):
            sections[name].append(line.strip())
        else:
            name = line.split()[0].rstrip(":,")
            sections[name] = []
    return sections


def test_staged_looks_at_the_index_alone(here: Here, memory: Path) -> None:
    _write(memory, "notes/bad.md", "---\nnever closed\n")
    assert here("memory", "check", "--staged").code == 0
    _git(memory, "add", "-A")
    _write(memory, "notes/bad.md", "good\n")
    done = here("memory", "check", "--staged")
    assert done.code == 1
    assert done.out == ""
    assert "  notes/bad.md: the front matter is not closed" in done.err
    assert here("memory", "check", "--staged", "--json").json["problems"][0]["path"] == "notes/bad.md"
    inside = {"GIT_DIR": str(memory.parent / "repo.git"), "LETTA_HOME": str(memory / "nowhere")}
    assert "notes/bad.md" in here("memory", "check", "--staged", env=inside).err


def test_e12_the_index_of_another_repository_is_not_ours(here: Here, memory: Path) -> None:
    _write(memory, "notes/bad.md", "---\nnever closed\n")
    _git(memory, "add", "-A")
    other = here.letta.project / ".git"
    hook = {
        "GIT_DIR": str(other),
        "GIT_INDEX_FILE": str(other / "index"),
        "GIT_WORK_TREE": str(here.letta.project),
    }
    assert "notes/bad.md" in here("memory", "check", "--staged", env=hook).err


def test_e37_a_secret_is_committed_by_a_person_who_says_so(here: Here, memory: Path) -> None:
    _write(memory, "notes/key.md", f"{TOKEN}\n")
    refused = here("memory", "commit", "-m", "x")
    assert refused.code == 1
    assert "notes/key.md: holds what looks like a secret (GitHub token ghp_… in line 1)" in refused.err
    assert "--allow-secret" in refused.err
    shell = {"LETTA_AGENT_ID": here("agents", "list", "--json").json[0]["id"]}
    agent = here("memory", "commit", "-m", "x", "--allow-secret", env=shell)
    assert agent.code == 2
    assert "--allow-secret is for a person" in agent.err
    assert here("memory", "commit", "-m", "x", "--allow-secret").code == 0
    assert here("memory", "check").code == 1


def test_a_text_over_its_limit_is_committed_by_a_person_who_says_so(here: Here, memory: Path) -> None:
    _write(memory, "notes/long.md", "---\nlimit: 3\n---\nlonger\n")
    assert "limit is 3 characters" in here("memory", "commit", "-m", "x").err
    assert here("memory", "commit", "-m", "x", "--over-limit").code == 0


def test_an_agents_shell_cannot_commit_a_draft_of_a_read_only_block(here: Here, memory: Path) -> None:
    _write(memory, "system/rules.md", "---\ndescription: d\nread_only: true\n---\nhers\n")
    assert here("memory", "commit", "-m", "mine").code == 0
    _write(memory, "system/rules.md", "---\ndescription: d\n---\nits\n")
    shell = {"LETTA_AGENT_ID": here("agents", "list", "--json").json[0]["id"]}
    for words in (["commit", "-m", "x"], ["check"]):
        done = here("memory", *words, env=shell)
        assert done.code == 1
        assert "system/rules.md: is read-only" in done.out + done.err
    assert here("memory", "check").code == 0


def test_a_budget_that_is_passed_is_a_warning_and_no_problem(here: Here, memory: Path) -> None:
    settings = here.letta.home / "config/settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('{"memory": {"budget": 0.0001}}')
    done = here("memory", "check")
    assert done.code == 0
    assert "warning: system/ takes about " in done.out
