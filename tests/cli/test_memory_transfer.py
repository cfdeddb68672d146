from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Letta

FAKE_KEY = "AKIAQ3EGXZ7PLMN2WKTD"


def create(letta: Letta, name: str) -> Path:
    assert letta("agents", "create", "--name", name).code == 0
    return Path(letta("memory", "path", "-a", name).out.strip())


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def learned(letta: Letta, name: str) -> Path:
    folder = create(letta, name)
    (folder / "notes").mkdir()
    (folder / "notes" / "ä b.md").write_text("---\ndescription: N\n---\nTea.\r\nNo newline")
    (folder / "system" / "project.md").unlink()
    assert letta("memory", "commit", "-a", name, "-m", "Learn").code == 0
    return folder


@pytest.mark.parametrize("target", ["out.zip", "out.bundle"])
def test_e41_export_wipe_import_gives_the_same_tree_and_from_a_bundle_the_same_history(
    letta: Letta, target: str
) -> None:
    old = learned(letta, "old")
    tree, log = git(old, "rev-parse", "HEAD^{tree}"), git(old, "log", "--format=%H")
    done = letta("memory", "export", target, "-a", "old", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["files"] == 3
    shutil.rmtree(letta.home)

    new = create(letta, "new")
    plan = letta("memory", "import", target, "-a", "new", "--dry-run")
    assert "nothing was changed" in plan.err
    assert len(git(new, "log", "--format=%H").splitlines()) == 1
    assert letta("memory", "import", target, "-a", "new").code == 0
    assert git(new, "rev-parse", "HEAD^{tree}") == tree
    assert git(new, "status", "--porcelain") == ""
    git(new, "fsck", "--strict")
    if target == "out.bundle":
        assert git(new, "log", "--format=%H") == log
    head = git(new, "rev-parse", "HEAD")
    again = letta("memory", "import", target, "-a", "new")
    assert (again.code, again.out) == (0, "")
    assert "nothing to import" in again.err
    assert git(new, "rev-parse", "HEAD") == head


def test_into_a_memory_that_has_learned_files_are_merged_and_yours_kept(letta: Letta) -> None:
    learned(letta, "old")
    assert letta("memory", "export", "x.bundle", "-a", "old").code == 0
    new = create(letta, "new")
    (new / "notes").mkdir()
    (new / "notes" / "ä b.md").write_text("mine\n")
    (new / "own.md").write_text("own\n")
    letta("memory", "commit", "-a", "new", "-m", "Mine")
    done = letta("memory", "import", "x.bundle", "-a", "new")
    assert done.code == 0
    assert "1 file of memory kept" in done.err
    assert (new / "notes" / "ä b.md").read_text() == "mine\n"
    assert letta("memory", "import", "x.bundle", "-a", "new", "--replace").code == 0
    assert (new / "notes" / "ä b.md").read_bytes().endswith(b"Tea.\r\nNo newline")
    assert (new / "own.md").exists()
    assert (new / "system" / "project.md").exists()


def test_a_projects_rules_come_in_one_commit_that_says_from_where(letta: Letta) -> None:
    new = create(letta, "new")
    (letta.project / "CLAUDE.md").write_text("# Rules\nSee @more.md\n")
    (letta.project / "more.md").write_text("More\n")
    (letta.project / "GEMINI.md").write_text(f"key {FAKE_KEY}\n")
    (letta.project / "sub").mkdir()
    (letta.project / "sub" / "AGENTS.md").write_text("# Sub\n")
    dry = letta("memory", "import", ".", "-a", "new", "-n", "--json").json
    assert dry["kind"] == "rules"
    assert dry["commit"] is None
    done = letta("memory", "import", ".", "-a", "new")
    assert done.code == 0
    assert FAKE_KEY not in done.out + done.err
    assert "GEMINI.md: holds what looks like a secret" in done.err
    [folder] = (new / "projects").iterdir()
    assert {path.name for path in folder.iterdir()} == {"CLAUDE.md", "more.md"}
    assert 'imported_from: "~/project/CLAUDE.md"' in (folder / "CLAUDE.md").read_text()
    message = git(new, "log", "-1", "--format=%B")
    assert message.startswith("Import 2 files from ~/project (rules)")
    assert "Letta-Source: import" in message
    assert letta("memory", "import", "sub", "-a", "new").code == 0
    assert (folder / "sub" / "AGENTS.md").exists()
    assert letta("memory", "import", "GEMINI.md", "-a", "new").code == 1
    assert letta("memory", "import", "GEMINI.md", "-a", "new", "--allow-secret").code == 0
    undone = letta("memory", "revert", "HEAD", "-a", "new")
    assert undone.code == 0
    assert not (folder / "GEMINI.md").exists()


def test_a_draft_in_the_way_is_said_and_nothing_changes(letta: Letta) -> None:
    new = create(letta, "new")
    (letta.project / "note.md").write_text("# Note\n")
    (new / "reference").mkdir()
    (new / "reference" / "note.md").write_text("my draft\n")
    head = git(new, "rev-parse", "HEAD")
    done = letta("memory", "import", "note.md", "-a", "new")
    assert done.code == 1
    assert "draft" in done.err
    assert git(new, "rev-parse", "HEAD") == head
    assert (new / "reference" / "note.md").read_text() == "my draft\n"


def test_an_agents_shell_exports_its_own_memory_and_imports_nothing(letta: Letta) -> None:
    create(letta, "new")
    state = letta("agents", "list", "--json").json[0]["id"]
    (letta.project / "note.md").write_text("# Note\n")
    env = {"LETTA_AGENT_ID": state}
    assert letta("memory", "export", "out", env=env).code == 0
    done = letta("memory", "import", "note.md", env=env)
    assert done.code == 2
    assert "for a person" in done.err


@pytest.mark.parametrize("target", ["out.tar.gz", "out"])
def test_an_export_replaces_an_export_and_nothing_else(letta: Letta, target: str) -> None:
    create(letta, "new")
    assert letta("memory", "export", target, "-a", "new").code == 0
    assert letta("memory", "export", target, "-a", "new").code == 0
    other = letta.project / "other"
    other.mkdir()
    file = other / target
    file.write_text("mine")
    done = letta("memory", "export", str(file), "-a", "new")
    assert done.code == 2
    assert file.read_text() == "mine"


def test_many_files_come_in_one_commit(letta: Letta) -> None:
    new = create(letta, "new")
    vault = letta.project / "vault"
    for number in range(600):
        file = vault / str(number % 20) / f"note {number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# Note {number}\n\ntext\n")
    assert letta("memory", "import", "vault", "-a", "new").code == 0
    assert git(new, "rev-list", "--count", "HEAD") == "2"
    assert len(list((new / "reference" / "vault").rglob("*.md"))) == 600
    assert "nothing to import: 600 files" in letta("memory", "import", "vault", "-a", "new").err
