"""`letta memory export | import`, in this process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Here

FAKE_KEY = "AKIAQ3EGXZ7PLMN2WKTD"


def create(here: Here, name: str) -> Path:
    assert here("agents", "create", "--name", name).code == 0
    return Path(here("memory", "path", "-a", name).out.strip())


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def learned(here: Here, name: str) -> Path:
    folder = create(here, name)
    (folder / "notes").mkdir()
    (folder / "notes" / "ä b.md").write_text("---\ndescription: N\n---\nTea.\r\nNo newline")
    (folder / "system" / "project.md").unlink()
    assert here("memory", "commit", "-a", name, "-m", "Learn").code == 0
    return folder


@pytest.mark.parametrize("target", ["out.zip", "out.bundle"])
def test_e41_export_wipe_import_gives_the_same_tree_and_from_a_bundle_the_same_history(
    here: Here, target: str
) -> None:
    old = learned(here, "old")
    tree, log = git(old, "rev-parse", "HEAD^{tree}"), git(old, "log", "--format=%H")
    done = here("memory", "export", target, "-a", "old", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["files"] == 3
    shutil.rmtree(here.letta.home)

    new = create(here, "new")
    plan = here("memory", "import", target, "-a", "new", "--dry-run")
    assert "nothing was changed" in plan.err
    assert len(git(new, "log", "--format=%H").splitlines()) == 1
    assert here("memory", "import", target, "-a", "new").code == 0
    assert git(new, "rev-parse", "HEAD^{tree}") == tree
    assert git(new, "status", "--porcelain") == ""
    git(new, "fsck", "--strict")
    if target == "out.bundle":
        assert git(new, "log", "--format=%H") == log
    head = git(new, "rev-parse", "HEAD")
    again = here("memory", "import", target, "-a", "new")
    assert (again.code, again.out) == (0, "")
    assert "nothing to import" in again.err
    assert git(new, "rev-parse", "HEAD") == head


def test_into_a_memory_that_has_learned_files_are_merged_and_yours_kept(here: Here) -> None:
    learned(here, "old")
    assert here("memory", "export", "x.bundle", "-a", "old").code == 0
    new = create(here, "new")
    (new / "notes").mkdir()
    (new / "notes" / "ä b.md").write_text("mine\n")
    (new / "own.md").write_text("own\n")
    here("memory", "commit", "-a", "new", "-m", "Mine")
    done = here("memory", "import", "x.bundle", "-a", "new")
    assert done.code == 0
    assert "1 file of memory kept" in done.err
    assert (new / "notes" / "ä b.md").read_text() == "mine\n"
    assert here("memory", "import", "x.bundle", "-a", "new", "--replace").code == 0
    assert (new / "notes" / "ä b.md").read_bytes().endswith(b"Tea.\r\nNo newline")
    assert (new / "own.md").exists()
    assert (new / "system" / "project.md").exists()


def test_a_projects_rules_come_in_one_commit_that_says_from_where(here: Here) -> None:
    new = create(here, "new")
    (here.letta.project / "CLAUDE.md").write_text("# Rules\nSee @more.md\n")
    (here.letta.project / "more.md").write_text("More\n")
    (here.letta.project / "GEMINI.md").write_text(f"key {FAKE_KEY}\n")
    (here.letta.project / "sub").mkdir()
    (here.letta.project / "sub" / "AGENTS.md").write_text("# Sub\n")
    dry = here("memory", "import", ".", "-a", "new", "-n", "--json").json
    assert dry["kind"] == "rules"
    assert dry["commit"] is None
    done = here("memory", "import", ".", "-a", "new")
    assert done.code == 0
    assert FAKE_KEY not in done.out + done.err
    assert "GEMINI.md: holds what looks like a secret" in done.err
    [folder] = (new / "projects").iterdir()
    assert {path.name for path in folder.iterdir()} == {"CLAUDE.md", "more.md"}
    assert 'imported_from: "~/project/CLAUDE.md"' in (folder / "CLAUDE.md").read_text()
    message = git(new, "log", "-1", "--format=%B")
    assert message.startswith("Import 2 files from ~/project (rules)")
    assert "Letta-Source: import" in message
    assert here("memory", "import", "sub", "-a", "new").code == 0
    assert (folder / "sub" / "AGENTS.md").exists()
    assert here("memory", "import", "GEMINI.md", "-a", "new").code == 1
    assert here("memory", "import", "GEMINI.md", "-a", "new", "--allow-secret").code == 0
    undone = here("memory", "revert", "HEAD", "-a", "new")
    assert undone.code == 0
    assert not (folder / "GEMINI.md").exists()


def test_a_draft_in_the_way_is_said_and_nothing_changes(here: Here) -> None:
    new = create(here, "new")
    (here.letta.project / "note.md").write_text("# Note\n")
    (new / "reference").mkdir()
    (new / "reference" / "note.md").write_text("my draft\n")
    head = git(new, "rev-parse", "HEAD")
    done = here("memory", "import", "note.md", "-a", "new")
    assert done.code == 1
    assert "draft" in done.err
    assert git(new, "rev-parse", "HEAD") == head
    assert (new / "reference" / "note.md").read_text() == "my draft\n"


def test_an_agents_shell_exports_its_own_memory_and_imports_nothing(here: Here) -> None:
    create(here, "new")
    state = here("agents", "list", "--json").json[0]["id"]
    (here.letta.project / "note.md").write_text("# Note\n")
    env = {"LETTA_AGENT_ID": state}
    assert here("memory", "export", "out", env=env).code == 0
    done = here("memory", "import", "note.md", env=env)
    assert done.code == 2
    assert "for a person" in done.err


@pytest.mark.parametrize("target", ["out.tar.gz", "out"])
def test_an_export_replaces_an_export_and_nothing_else(here: Here, target: str) -> None:
    create(here, "new")
    assert here("memory", "export", target, "-a", "new").code == 0
    assert here("memory", "export", target, "-a", "new").code == 0
    other = here.letta.project / "other"
    other.mkdir()
    file = other / target
    file.write_text("mine")
    done = here("memory", "export", str(file), "-a", "new")
    assert done.code == 2
    assert file.read_text() == "mine"


def test_many_files_come_in_one_commit(here: Here) -> None:
    new = create(here, "new")
    vault = here.letta.project / "vault"
    for number in range(200):
        file = vault / str(number % 20) / f"note {number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# Note {number}\n\ntext\n")
    assert here("memory", "import", "vault", "-a", "new").code == 0
    assert git(new, "rev-list", "--count", "HEAD") == "2"
    assert len(list((new / "reference" / "vault").rglob("*.md"))) == 200
    assert "nothing to import: 200 files" in here("memory", "import", "vault", "-a", "new").err


def everything(home: Path) -> dict[str, tuple[object, ...]]:
    """Every file and folder of a person's home, with times of change: what a dry run must leave alone."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(home.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(home))] = status.st_mode, status.st_ino, status.st_mtime_ns, data
    return found


def test_a_dry_run_leaves_every_byte_of_home_alone(here: Here) -> None:
    new = create(here, "new")
    (new / "draft.md").write_text("a draft")
    (here.letta.project / "AGENTS.md").write_text("# Rules\n")
    assert here("memory", "export", "x.bundle", "-a", "new").code == 0
    home = here.letta.home.parent
    before = everything(home)
    for source in (".", "AGENTS.md", "x.bundle"):
        done = here("memory", "import", source, "-a", "new", "--dry-run")
        assert (done.code, "nothing was changed" in done.err) == (0, True)
    assert everything(home) == before


def test_e37_a_secret_in_the_past_of_a_history_is_found(here: Here) -> None:
    old = create(here, "old")
    for text, option in ((f"key {FAKE_KEY}", "--allow-secret"), ("no key", "--over-limit")):
        (old / "keys.md").write_text(f"---\ndescription: Keys\n---\n{text}\n")
        assert here("memory", "commit", "-a", "old", "-m", "Learn", option).code == 0
    assert here("memory", "export", "x.bundle", "-a", "old").code == 0
    new = create(here, "new")
    head = git(new, "rev-parse", "HEAD")
    for option in ("--dry-run", "--yes"):
        done = here("memory", "import", "x.bundle", "-a", "new", option)
        assert f"keys.md in {git(old, 'rev-parse', 'HEAD~1')[:10]}" in done.out + done.err
        assert "what looks like a secret" in done.out + done.err
        assert FAKE_KEY not in done.out + done.err
    assert (done.code, git(new, "rev-parse", "HEAD")) == (2, head)
    assert here("memory", "import", "x.bundle", "-a", "new", "--allow-secret").code == 0
    assert git(new, "rev-parse", "HEAD") == git(old, "rev-parse", "HEAD")
