from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from letta_code.memory.edits import Replace
from letta_code.memory.git.check import problems_of_head
from letta_code.memory.git.log import log
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.review import pending
from letta_code.memory.hooks import NAMES, missing_hooks
from letta_code.memory.render import render_memory
from tests.memory.conftest import AGENT

TOKEN = "ghp_aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3hJ5"
SHELL = {"LETTA_AGENT_ID": "agent-7", "LETTA_CONVERSATION_ID": "conv-8"}


def _git(
    repository: MemoryRepository, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A person's git, whose global settings point hooks elsewhere; no Python variable helps ours."""
    home = repository.git_dir.parent / "home"
    home.mkdir(exist_ok=True)
    (home / ".gitconfig").write_text(
        "[user]\nname = Person\nemail = p@example.org\n[core]\nhooksPath = /nonexistent\n"
    )
    return subprocess.run(
        ["git", *words],
        cwd=cwd or repository.worktree,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def _write(repository: MemoryRepository, path: str, text: str | bytes) -> None:
    file = repository.worktree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)


def test_plain_git_commits_what_is_right(repository: MemoryRepository) -> None:
    _write(repository, "system/human.md", "---\ndescription: The person.\nlimit: 40\n---\nLikes cake.\n")
    assert _git(repository, "add", "-A").returncode == 0
    done = _git(repository, "commit", "-m", "cake")
    assert (done.returncode, done.stderr) == (0, "")
    assert log(repository, 1)[0].reason == "cake"
    assert log(repository, 1)[0].trailers == {}


@pytest.mark.parametrize("words", [["-m", "x"], ["-am", "x"], ["-m", "x", "system/human.md"]])
def test_plain_git_is_told_what_to_fix(repository: MemoryRepository, words: list[str]) -> None:
    head = repository.head()
    _write(repository, "system/human.md", f"---\ndescription: The person.\nlimit: 40\n---\nL {TOKEN}.\n")
    _write(repository, "notes/a.md", "---\nnever closed\n")
    _write(repository, "notes/b.md", "hé".encode("utf-16"))
    if "-am" in words:
        _git(repository, "add", "notes")
    elif "system/human.md" not in words:
        _git(repository, "add", "-A")
    done = _git(repository, "commit", *words)
    assert done.returncode != 0
    assert repository.head() == head
    lines = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
    told = {line.split(":")[0] for line in lines}
    assert told == (
        {"system/human.md"} if "system/human.md" in words else {"system/human.md", "notes/a.md", "notes/b.md"}
    )
    assert any("GitHub token ghp_… in line 5" in line for line in lines)
    assert TOKEN[8:] not in done.stderr + done.stdout


def test_only_what_is_committed_is_checked(repository: MemoryRepository) -> None:
    _write(repository, "notes/good.md", "good\n")
    _git(repository, "add", "-A")
    _write(repository, "notes/bad.md", "---\nnever closed\n")
    _write(repository, "system/human.md", f"draft {TOKEN}\n")
    done = _git(repository, "commit", "-m", "good")
    assert (done.returncode, done.stderr) == (0, "")
    assert log(repository, 1)[0].paths == ("notes/good.md",)


def test_a_read_only_block_is_the_persons_alone(repository: MemoryRepository) -> None:
    text = "---\ndescription: d\nread_only: true\n---\nhers\n"
    _write(repository, "system/rules.md", text)
    _git(repository, "add", "-A")
    assert _git(repository, "commit", "-m", "mine").returncode == 0
    for change, words in ((text.replace("hers", "its"), "-am"), (text.replace("true", "false"), "-anm")):
        _write(repository, "system/rules.md", change)
        done = _git(repository, "commit", words, "x", env=SHELL)
        assert done.returncode != 0
        assert "system/rules.md: is read-only" in done.stderr
        assert "--no-verify" not in done.stderr
    _git(repository, "reset", "-q", "--hard")
    head = repository.head()
    assert "is read-only" in _git(repository, "revert", "--no-edit", "HEAD", env=SHELL).stderr
    assert repository.head() == head
    _git(repository, "reset", "-q", "--hard")
    assert _git(repository, "rm", "-qf", "system/rules.md").returncode == 0
    assert _git(repository, "commit", "-m", "x", env=SHELL).returncode != 0
    assert _git(repository, "commit", "-m", "x").returncode == 0


def test_what_an_agent_commits_with_plain_git_says_so_and_waits_for_review(
    repository: MemoryRepository,
) -> None:
    for words in (
        ["-m", "why\n\nLetta-Agent: agent-other\nLetta-Source: user-stated\nLetta-Reviewed: person"],
        ["-m", "why", "--no-verify"],
        ["-s", "-m", "why"],
    ):
        _write(repository, "notes/a.md", f"{words}\n")
        _git(repository, "add", "-A")
        assert _git(repository, "commit", *words, env=SHELL).returncode == 0
        (commit,) = log(repository, 1)
        assert commit.reason.startswith("why")
        assert dict(commit.trailers) == {
            "Letta-Agent": "agent-7",
            "Letta-Conversation": "conv-8",
            "Letta-Source": "inferred",
        }
        assert pending(repository)[0].commit == commit
    verdict = f"I confirm\n\nLetta-Confirms: {commit.revision}\n\nThis reverts commit {commit.revision}."
    assert _git(repository, "commit", "--allow-empty", "-m", verdict, env=SHELL).returncode == 0
    assert [item.commit.revision for item in pending(repository)][1] == commit.revision
    forged = {"LETTA_AGENT_ID": "x\nLetta-Source: user-stated"}
    _write(repository, "notes/a.md", "forged\n")
    assert _git(repository, "commit", "-qam", "why", env=forged).returncode == 0
    assert log(repository, 1)[0].trailers == {"Letta-Source": "inferred"}


def test_an_agents_plain_commit_is_refused_while_its_writes_are_held(
    repository: MemoryRepository, tmp_path: Path
) -> None:
    settings = tmp_path / "letta" / "config" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"memory": {"review": "hold"}}')
    place = {"LETTA_HOME": str(tmp_path / "letta")}
    _write(repository, "notes/a.md", "x\n")
    _git(repository, "add", "-A")
    head = repository.head()
    done = _git(repository, "commit", "-m", "why", env=SHELL | place)
    assert done.returncode != 0
    assert "held for the person's review" in done.stderr
    assert "use the memory tool" in done.stderr
    assert repository.head() == head
    assert _git(repository, "commit", "-m", "why", env=place).returncode == 0


def test_an_empty_message_still_stops_a_commit(repository: MemoryRepository) -> None:
    _write(repository, "notes/a.md", "x\n")
    _git(repository, "add", "-A")
    for words in (["-m", ""], []):
        assert _git(repository, "commit", *words, env=SHELL | {"GIT_EDITOR": "true"}).returncode != 0


def test_e37_a_message_with_a_secret_is_refused(repository: MemoryRepository) -> None:
    _write(repository, "notes/a.md", "x\n")
    _git(repository, "add", "-A")
    done = _git(repository, "commit", "-m", f"she said {TOKEN}")
    assert done.returncode != 0
    assert "the message: holds what looks like a secret (GitHub token ghp_… in line 1)" in done.stderr
    assert _git(repository, "commit", "-m", "she said `letta memory check --staged` is right").returncode == 0


def test_a_merge_is_checked(repository: MemoryRepository) -> None:
    _git(repository, "switch", "-qc", "other")
    _write(repository, "notes/bad.md", "---\nnever closed\n")
    _git(repository, "add", "-A")
    _git(repository, "commit", "-qm", "bad", "--no-verify")
    _git(repository, "switch", "-q", "main")
    repository.commit(Replace("system/human", "tea", "cake"), "x", AGENT)
    done = _git(repository, "merge", "--no-edit", "other")
    assert done.returncode != 0
    assert "notes/bad.md: the front matter is not closed" in done.stderr
    assert _git(repository, "merge", "--abort").returncode == 0


def test_a_bypassed_hook_is_caught_when_memory_is_read(repository: MemoryRepository) -> None:
    _write(repository, "system/human.md", "---\nnever closed\n")
    _write(repository, "notes/key.md", f"{TOKEN}\n")
    _git(repository, "add", "-A")
    assert _git(repository, "commit", "-m", "x", "--no-verify").returncode == 0
    found = {problem.path: problem.message for problem in problems_of_head(repository.snapshot())}
    assert "not closed" in found["system/human.md"]
    assert "GitHub token ghp_… in line 1" in found["notes/key.md"]
    text = render_memory(repository.snapshot())
    assert "system/human.md: the front matter is not closed" in text
    assert "Likes tea." in text


def test_a_hook_of_the_person_stays_and_is_named(repository: MemoryRepository) -> None:
    file = repository.git_dir / "hooks/pre-commit"
    file.write_text("#!/bin/sh\nexit 0\n")
    other = repository.git_dir / "hooks/commit-msg"
    other.write_text(other.read_text().replace("python=", "python=/old"))
    MemoryRepository.open(repository.git_dir)
    assert file.read_text() == "#!/bin/sh\nexit 0\n"
    assert "/old" not in other.read_text()
    assert missing_hooks(repository.git_dir) == ("pre-commit",)
    shutil.rmtree(file.parent)
    assert missing_hooks(repository.git_dir) == NAMES
    MemoryRepository.open(repository.git_dir)
    assert missing_hooks(repository.git_dir) == ()


def test_a_moved_memory_is_still_checked(repository: MemoryRepository, tmp_path: Path) -> None:
    moved = tmp_path / "a 'new' place"
    moved.mkdir()
    for name in ("repo.git", "memory"):
        shutil.move(tmp_path / name, moved / name)
    _write_bad = moved / "memory/notes/bad.md"
    _write_bad.parent.mkdir()
    _write_bad.write_text("---\nnever closed\n")
    _git(repository, "add", "-A", cwd=moved / "memory")
    done = _git(repository, "commit", "-m", "x", cwd=moved / "memory/notes")
    assert done.returncode != 0
    assert "notes/bad.md: the front matter is not closed" in done.stderr


def test_without_letta_the_commit_passes_and_says_that_it_was_not_checked(
    repository: MemoryRepository,
) -> None:
    for name in NAMES:
        file = repository.git_dir / "hooks" / name
        lines = [
            "python=/nowhere" if line.startswith("python=") else line for line in file.read_text().split("\n")
        ]
        file.write_text("\n".join(lines))
    _write(repository, "notes/bad.md", "---\nnever closed\n")
    _git(repository, "add", "-A")
    plain = repository.git_dir.parent / "bin"
    plain.mkdir()
    for tool in ("git", "sh", "dirname", "grep"):
        found = shutil.which(tool)
        assert found is not None
        (plain / tool).symlink_to(found)
    done = _git(repository, "commit", "-m", "x", env={"PATH": str(plain)})
    assert done.returncode == 0
    assert "letta: not checked, since letta is not installed any more" in done.stderr
