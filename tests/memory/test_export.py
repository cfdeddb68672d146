from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
import tempfile
import unicodedata
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from letta_code.errors import MemoryStoreError, UsageError
from letta_code.memory.edits import Put
from letta_code.memory.exporting import find_marker, write_archive, write_folder
from letta_code.memory.git.beginning import is_fresh
from letta_code.memory.git.bundle import opened_history, take_history, write_bundle
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.importing.kinds import items_of, recognise
from letta_code.memory.importing.plan import Memory, make_plan
from letta_code.memory.rules import PERSON, problems_of
from letta_code.memory.seed import default_files
from letta_code.memory.snapshot import SnapshotFiles
from tests.memory.conftest import AGENT, SEED, Git

SEED_BYTES = {path: text.encode() for path, text in default_files().items()}


def new_agent(folder: Path) -> MemoryRepository:
    return MemoryRepository.create(
        folder / "repo.git", folder / "memory", default_files(), AGENT, "Start memory"
    )


def files_of(repository: MemoryRepository) -> dict[str, bytes]:
    return dict(SnapshotFiles(repository.snapshot()))


def restore(path: Path, repository: MemoryRepository) -> None:
    """Import an export as the command line does."""
    source = recognise(path, path.parent)
    items, skipped = items_of(source, "", "", "x")
    plan = make_plan(
        Memory(SnapshotFiles(repository.snapshot()), SEED_BYTES, is_fresh(repository)),
        items,
        skipped,
        "x",
        PERSON | {"limit", "secret"},
        whole=True,
    )
    assert not plan.skipped
    if plan.changes:
        repository.commit(Put(plan.changes), "Import", AGENT, overrides=PERSON | {"limit", "secret"})


def parts() -> st.SearchStrategy[str]:
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="/\0")
    return st.text(letters, min_size=1, max_size=12) | st.sampled_from([".letta-export", "memory", "a b.md"])


def trees() -> st.SearchStrategy[dict[str, bytes]]:
    paths = st.lists(parts(), min_size=1, max_size=3).map("/".join)
    markdown = st.tuples(paths.map(lambda path: f"{path}.md"), st.text(max_size=60).map(str.encode))
    other = st.tuples(paths, st.binary(max_size=60))
    return st.lists(markdown | other, min_size=1, max_size=8).map(dict)


@settings(max_examples=40, deadline=None)
@given(trees())
def test_e41_any_tree_comes_back_byte_for_byte_from_every_form(tree: Mapping[str, bytes]) -> None:
    assume(not problems_of({}, tree, PERSON | {"limit", "secret"}))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for target in ("out", "out.tar.gz", "out.zip"):
            path = folder / target
            if target == "out":
                write_folder(path, tree, "0" * 40)
            else:
                write_archive(path, tree, "0" * 40, 1_700_000_000)
            items, skipped = items_of(recognise(path, folder), "", "", "x")
            assert not skipped
            assert {item.target: item.data for item in items} == tree
            plan = make_plan(
                Memory(SEED_BYTES, SEED_BYTES, True),
                items,
                skipped,
                "x",
                PERSON | {"limit", "secret"},
                whole=True,
            )
            after = {k: v for k, v in {**SEED_BYTES, **plan.changes}.items() if v is not None}
            assert after == tree


@settings(max_examples=5, deadline=None)
@given(trees())
def test_e41_through_real_repositories_tree_and_history_are_identical(tree: Mapping[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = new_agent(folder / "first")
        assume(not problems_of(files_of(first), tree, PERSON | {"limit", "secret"}))
        first.commit(Put(tree), "Learn", AGENT, overrides=PERSON | {"limit", "secret"})
        first.commit(Put({"system/human.md": None}), "Forget", AGENT, overrides=PERSON)
        snapshot = first.snapshot()
        write_archive(folder / "x.tar.gz", files_of(first), snapshot.revision, 0)
        write_bundle(first, folder / "x.bundle")

        second = new_agent(folder / "second")
        restore(folder / "x.tar.gz", second)
        assert second.snapshot().root == snapshot.root
        assert not second.status()

        third = new_agent(folder / "third")
        with opened_history(folder / "x.bundle", os.environ) as history:
            take_history(third, history, os.environ)
        assert third.head() == first.head()
        assert not third.status()
        assert "refs/letta/imported" not in third.git.references


def test_an_archive_is_the_same_bytes_each_time_and_private(tmp_path: Path) -> None:
    files = {"a/ä.md": b"x", "b.md": b"y" * 300, "n" * 230 + ".md": b"long"}
    for suffix in (".tar.gz", ".zip"):
        one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
        write_archive(one, files, "r", 1_700_000_000)
        write_archive(two, dict(reversed(files.items())), "r", 1_700_000_000)
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_mode & 0o777 == 0o600


def test_archives_are_read_by_the_usual_programs(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.tar.gz", {"a/ä.md": b"x"}, "r", 1_700_000_000)
    write_archive(tmp_path / "x.zip", {"a/ä.md": b"x"}, "r", 0)
    subprocess.run(["tar", "-xzf", "x.tar.gz"], cwd=tmp_path, check=True)
    assert (tmp_path / "memory/a/ä.md").read_bytes() == b"x"
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.testzip() is None
        assert archive.read("memory/a/ä.md") == b"x"


def test_a_folder_is_written_anew_only_while_it_is_as_it_was_exported(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_folder(target, {"a.md": b"1", "b/c.md": b"2"}, "r1")
    write_folder(target, {"a.md": b"3"}, "r2")
    assert not (target / "b").exists()
    assert (target / "a.md").read_bytes() == b"3"
    (target / "a.md").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"a\.md is not as it was exported"):
        write_folder(target, {"a.md": b"4"}, "r3")
    assert (target / "a.md").read_bytes() == b"mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("there", ["file", "full", "link"])
def test_what_is_there_is_never_lost(tmp_path: Path, there: str) -> None:
    target = tmp_path / "out"
    (tmp_path / "else").mkdir()
    if there == "file":
        target.write_text("x")
    elif there == "link":
        target.symlink_to(tmp_path / "else")
    else:
        target.mkdir()
        (target / "mine.txt").write_text("x")
    with pytest.raises(UsageError):
        write_folder(target, {"a.md": b"1"}, "r")
    with pytest.raises((UsageError, MemoryStoreError)):
        write_bundle(new_agent(tmp_path / "agent"), target)


def test_the_note_is_found_where_memory_has_one_of_its_own() -> None:
    note = b'{"format": "letta-memory-export", "files": {}}'
    assert find_marker({".letta-export": note, "a.md": b""}) is not None
    assert find_marker({".letta-export": b"my own words"}) is None
    later = find_marker({".letta-export": note, ".letta-export-2": note})
    assert later is not None
    assert later.name == ".letta-export-2"


def test_a_bundle_is_gits_own(repository: MemoryRepository, git: Git, tmp_path: Path) -> None:
    repository.commit(Put({"reference/ü.md": b"# x\n"}), "Learn", AGENT)
    write_bundle(repository, tmp_path / "x.bundle")
    write_bundle(repository, tmp_path / "x.bundle")
    git("bundle", "verify", "-q", str(tmp_path / "x.bundle"))
    git("clone", "-q", str(tmp_path / "x.bundle"), str(tmp_path / "clone"))
    assert git("-C", str(tmp_path / "clone"), "rev-parse", "HEAD").strip() == repository.head()
    assert git("-C", str(tmp_path / "clone"), "branch", "--show-current").strip() == "main"
    assert (tmp_path / "x.bundle").stat().st_mode & 0o777 == 0o600


def test_a_history_is_taken_by_a_fresh_memory_alone(repository: MemoryRepository, tmp_path: Path) -> None:
    write_bundle(repository, tmp_path / "x.bundle")
    other = new_agent(tmp_path / "other")
    other.commit(Put({"a.md": b"mine\n"}), "Learn", AGENT)
    head = other.head()
    with (
        opened_history(tmp_path / "x.bundle", os.environ) as history,
        pytest.raises(MemoryStoreError, match="meanwhile"),
    ):
        take_history(other, history, os.environ)
    assert other.head() == head
    assert history.files.files == {path: text.encode() for path, text in SEED.items()}


@pytest.mark.parametrize("damage", ["cut", "head", "garbage"])
def test_a_damaged_bundle_changes_nothing(repository: MemoryRepository, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "x.bundle"
    write_bundle(repository, file)
    data = file.read_bytes()
    broken = {
        "cut": data[:-30],
        "head": data.replace(repository.head().encode(), b"1" * 40),
        "garbage": data[:60] + bytes(90),
    }
    file.write_bytes(broken[damage])
    with pytest.raises(MemoryStoreError), opened_history(file, os.environ):
        raise AssertionError("it was read")


def test_a_git_variable_does_not_lead_the_import_astray(repository: MemoryRepository, tmp_path: Path) -> None:
    write_bundle(repository, tmp_path / "x.bundle")
    wrong = os.environ | {"GIT_DIR": str(tmp_path), "GIT_OBJECT_DIRECTORY": str(tmp_path / "o")}
    with opened_history(tmp_path / "x.bundle", wrong) as history:
        assert history.revision == repository.head()


def test_a_history_with_a_link_is_refused_whole(
    repository: MemoryRepository, git: Git, tmp_path: Path
) -> None:
    (repository.worktree / "evil.md").symlink_to("/etc/passwd")
    git("add", "evil.md")
    git("commit", "-q", "--no-verify", "-m", "link")
    write_bundle(MemoryRepository.open(repository.git_dir), tmp_path / "x.bundle")
    fresh = new_agent(tmp_path / "fresh")
    with (
        opened_history(tmp_path / "x.bundle", os.environ) as history,
        pytest.raises(MemoryStoreError, match="symbolic link"),
    ):
        take_history(fresh, history, os.environ)
    assert is_fresh(fresh)


def hostile_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, target in (
            ("../up.md", tarfile.REGTYPE, ""),
            ("/abs.md", tarfile.REGTYPE, ""),
            ("a/../../b.md", tarfile.REGTYPE, ""),
            ("link.md", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard.md", tarfile.LNKTYPE, "good.md"),
            ("fifo.md", tarfile.FIFOTYPE, ""),
            ("good.md", tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"# x\n"))


def test_a_hostile_archive_gives_its_good_file_alone(tmp_path: Path) -> None:
    hostile_tar(tmp_path / "x.tar.gz")
    items, skipped = items_of(recognise(tmp_path / "x.tar.gz", tmp_path), "", "", "x")
    assert [item.target for item in items] == ["reference/x/good.md"]
    assert {one.path for one in skipped} == {
        "../up.md", "/abs.md", "a/../../b.md", "link.md", "hard.md", "fifo.md"
    }  # fmt: skip
    assert all(one.why.startswith("refused") for one in skipped)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("big.md")
    member.size = 600 * 2**20  # what it says is enough to refuse it
    (tmp_path / "bomb.tar.gz").write_bytes(gzip.compress(member.tobuf() + bytes(2048)))
    with pytest.raises(UsageError, match="512 MB"):
        recognise(tmp_path / "bomb.tar.gz", tmp_path)


@settings(max_examples=60, deadline=None)
@example(b"# v2 git bundle\n", "x.bundle", False)
@given(st.binary(max_size=400), st.sampled_from(["x.zip", "x.tar.gz", "x.bundle", "x.md"]), st.booleans())
def test_e31_odd_bytes_are_one_clear_refusal_or_an_empty_plan(data: bytes, name: str, cut: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if cut and name != "x.md" and name != "x.bundle":
            write_archive(path, {"a.md": data}, "r", 0)
            path.write_bytes(path.read_bytes()[: len(data) + 30])
        else:
            path.write_bytes(data)
        try:
            source = recognise(path, Path(folder))
            if source.kind == "history":
                with opened_history(path, os.environ) as history:
                    source = replace(source, files=history.files)
            items, skipped = items_of(source, "", "", "x")
        except (UsageError, MemoryStoreError):
            return
        plan = make_plan(Memory({}, {}), items, skipped, "x", PERSON)
        assert not problems_of({}, plan.changes, PERSON)


def test_names_of_two_unicode_forms_are_kept_apart(tmp_path: Path) -> None:
    composed, apart = "é.md", unicodedata.normalize("NFD", "é.md")
    write_archive(tmp_path / "x.zip", {composed: b"# 1\n", apart: b"# 2\n"}, "r", 0)
    items, skipped = items_of(recognise(tmp_path / "x.zip", tmp_path), "", "", "x")
    plan = make_plan(Memory({}, {}), items, skipped, "x", PERSON, whole=True)
    assert sorted(data for data in plan.changes.values() if data) == [b"# 1\n", b"# 2\n"]
    again = make_plan(Memory({k: v for k, v in plan.changes.items() if v}, {}), items, skipped, "x", PERSON)
    assert not again.changes
