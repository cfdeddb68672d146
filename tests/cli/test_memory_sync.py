"""`letta memory remote` and `sync` as a person meets them, with a home for each machine."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from letta_code.agent.state import AgentStore
from letta_code.memory.edits import Create
from letta_code.memory.git.log import log
from letta_code.memory.git.remote import set_remote
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.sync import sync
from letta_code.memory.history import Author
from letta_code.memory.rules import PERSON
from letta_code.memory.seed import default_files
from letta_code.memory.transport import Transport
from letta_code.paths import Paths
from tests.cli.harness import Letta
from tests.model_server import ModelServer, call, turn


def new_machine(folder: Path) -> Letta:
    """A laptop with an agent whose memory is its seed."""
    project = folder / "project"
    project.mkdir(parents=True)
    letta = Letta(folder / "home", project, {"USER": folder.name})
    store = AgentStore(Paths.from_environment({"LETTA_HOME": str(letta.home)}))
    store.create("letta", "Be kind. {CORE_MEMORY}", default_files())
    return letta


def machine(folder: Path, remote: Path) -> Letta:
    """A laptop in step with the remote."""
    letta = new_machine(folder)
    set_remote(repository(letta), str(remote))
    synced(letta, str(remote))
    return letta


def synced(letta: Letta, remote: str) -> None:
    memory = repository(letta)
    sync(memory, Transport(memory.git_dir, remote, os.environ), Author("P", "p@example.org"))


def repository(letta: Letta) -> MemoryRepository:
    (folder,) = letta.home.glob("memfs/*/*/repo.git")
    return MemoryRepository.open(folder)


def learn(letta: Letta, path: str, text: str, why: str = "Said so") -> None:
    """A person writes a file and commits it."""
    memory = repository(letta)
    file = memory.worktree / path
    file.write_text(file.read_text() + text if file.exists() else text)
    name = letta.environment["USER"]
    memory.commit_drafts(why, Author(name, f"{name}@example.org"), overrides=PERSON)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    folder = tmp_path / "shared.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    return folder


def test_two_machines_lose_nothing_and_one_command_resolves_a_conflict(tmp_path: Path, bare: Path) -> None:
    desk = machine(tmp_path / "desk", bare)
    learn(desk, "system/human.md", "Name: Ada.\n")
    assert "1 sent" in desk("memory", "sync").out
    laptop = new_machine(tmp_path / "laptop")
    assert laptop("memory", "remote", "set", f"file://{bare}").code == 0
    assert "2 received" in laptop("memory", "sync").out
    assert repository(laptop).head() == repository(desk).head()
    # Offline, both learn: the same block, and different ones.
    learn(desk, "system/human.md", "Likes tea.\n", "She said tea")
    learn(desk, "desk.md", "x\n")
    learn(laptop, "system/human.md", "Likes mate.\n", "He said mate")
    learn(laptop, "laptop.md", "y\n")
    synced(desk, str(bare))
    shown = laptop("memory", "sync")
    assert shown.code == 1
    command = "letta memory sync --keep both"
    passages = ("Likes mate.", "Likes tea.", "desk: She said tea", "laptop: He said mate")
    for words in ("system/human.md", command, *passages):
        assert words in shown.out
    assert laptop("memory", "sync", "--json").json["conflicts"][0]["ours"]["texts"] == ["Likes mate."]
    assert "both sides changed" in laptop("memory", "status").err
    resolved = laptop(*command.split()[1:])
    assert (resolved.code, "merged: 2 received, 3 sent" in resolved.out) == (0, True), resolved.err
    assert "3 received" in desk("memory", "sync").out
    for letta in (desk, laptop):
        memory = repository(letta)
        text = memory.snapshot().read("system/human.md").decode()
        assert text.endswith("Name: Ada.\nLikes mate.\nLikes tea.\n")
        assert {"desk.md", "laptop.md"} <= set(memory.snapshot().entries)
        assert memory.status() == ()
        assert {"She said tea", "He said mate"} <= {commit.reason for commit in log(memory)}


def test_e10_the_remote_is_shown_without_secrets_and_asks_nobody(tmp_path: Path) -> None:
    letta = new_machine(tmp_path)
    called = tmp_path / "called"
    (tmp_path / ".gitconfig").write_text(f'[credential]\n\thelper = "!touch {called}; sleep 100; #"\n')
    missing = letta("memory", "sync")
    assert (missing.code, "letta memory remote set URL" in missing.err) == (2, True)
    url = "https://ada:hunter22@127.0.0.1:1/x.git"
    refused = letta("memory", "remote", "set", url)
    assert (refused.code, "credential helper" in refused.err) == (2, True)
    taken = letta("memory", "remote", "set", url, "--allow-secret")
    assert (taken.code, "plain text" in taken.err) == (0, True)
    failed = letta("memory", "sync")
    assert failed.code == 75
    done = [
        refused,
        taken,
        failed,
        letta("memory", "remote", "show"),
        letta("memory", "remote", "show", "--json"),
        letta("doctor"),
    ]
    said = "".join(each.out + each.err for each in done)
    assert "hunter22" not in said
    assert "https://***@127.0.0.1:1/x.git" in done[3].out
    assert not called.exists()
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter22" in path.read_bytes()]
    assert [path.name for path in kept] == ["config"]
    assert letta("memory", "remote", "unset").code == 0
    assert letta("memory", "remote", "show").code == 2


def test_an_agents_shell_changes_no_remote(tmp_path: Path) -> None:
    letta = new_machine(tmp_path)
    agent = repository(letta).git_dir.parent.name
    for words in (("remote", "set", "/x"), ("sync", "--adopt")):
        done = letta("memory", *words, env={"LETTA_AGENT_ID": agent})
        assert (done.code, "for a person" in done.err) == (2, True)


def test_e04_adopting_says_where_the_rest_is(tmp_path: Path, bare: Path) -> None:
    desk = machine(tmp_path / "desk", bare)
    learn(desk, "mine.md", "only here\n")
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", "-b", "main", str(other)], check=True)
    (other / "theirs.md").write_text("x\n")
    name = ["-c", "user.name=P", "-c", "user.email=p@example.org"]
    for words in (["add", "."], [*name, "commit", "-qm", "Other"], ["push", "-qf", str(bare), "main"]):
        subprocess.run(["git", *words], cwd=other, check=True)
    refused = desk("memory", "sync")
    assert (refused.code, "rewritten" in refused.err) == (1, True)
    adopted = desk("memory", "sync", "--adopt")
    assert adopted.code == 0, adopted.err
    rescue = adopted.err.strip().rpartition(" ")[2]
    assert rescue in refused.err
    assert set(repository(desk).snapshot().entries) == {"theirs.md"}
    assert repository(desk).read(rescue, "mine.md") == b"only here\n"


def test_memory_syncs_after_each_turn_in_the_background(tmp_path: Path, bare: Path) -> None:
    desk = machine(tmp_path / "desk", bare)
    pushed = tmp_path / "pushed"
    os.mkfifo(pushed)
    (bare / "hooks/post-receive").write_text(f"#!/bin/sh\nread old new name\necho $new > {pushed}\n")
    (bare / "hooks/post-receive").chmod(0o700)
    settings = desk.home / "config/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"memory": {"sync": "turn"}}')
    remember = call(
        "memory",
        command="create",
        reason="She said so",
        file_path="tea.md",
        description="Tea.",
        file_text="Likes tea.\n",
    )
    with ModelServer([turn("I note it.", remember), turn("Noted."), turn("Hello.")]) as server:
        desk.environment |= {"VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x"}
        done = desk("-p", "--permission-mode", "bypassPermissions", "I like tea")
        assert done.code == 0, done.err
        assert pushed.read_text().strip() == repository(desk).head()
        assert "tea.md" in repository(desk).snapshot().entries
        # What went wrong earlier is told once the person is there.
        bare.rename(tmp_path / "moved.git")
        assert desk("memory", "sync").code == 1
        told = desk("-p", "Hello")
    assert told.out == "Hello.\n"
    assert "memory sync: git ls-remote" in told.err
    server.assert_finished()


def test_killed_at_any_point_memory_is_whole_and_drafts_survive(tmp_path: Path, bare: Path) -> None:
    desk, laptop = machine(tmp_path / "desk", bare), machine(tmp_path / "laptop", bare)
    chance = random.Random(3)
    here, there = repository(desk), repository(laptop)
    (there.worktree / "draft.md").write_text("mine\n")
    for number in range(3):
        here.commit(Create(f"desk/{number}.md", "About.", "x\n"), "New", Author("D", "d@example.org"))
        there.commit(Create(f"laptop/{number}.md", "About.", "y\n"), "New", Author("L", "l@example.org"))
        synced(desk, str(bare))
        process = laptop.start("memory", "sync")
        with process:
            try:
                process.communicate(timeout=chance.uniform(0.4, 1.2))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        check = ["git", "fsck", "--strict", "--no-dangling"]
        subprocess.run(check, cwd=there.worktree, check=True, capture_output=True)
        assert (there.worktree / "draft.md").read_text() == "mine\n"
        assert f"laptop/{number}.md" in repository(laptop).snapshot().entries
    assert laptop("memory", "sync").code == 0
    synced(desk, str(bare))
    assert here.head() == there.head()
    assert [draft.path for draft in repository(laptop).status()] == ["draft.md"]
    assert len(here.snapshot().entries) == 3 + 6
