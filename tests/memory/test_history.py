"""Looking back through MemoryRepository: log, blame, search, diff; compared with Git's own answers."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pygit2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.errors import MemoryStoreError
from letta_code.memory.edits import Create, Delete, Rename, Replace
from letta_code.memory.exporting import write_archive
from letta_code.memory.git.blame import blame
from letta_code.memory.git.log import diff_of, log
from letta_code.memory.git.repository import Author, MemoryRepository, Provenance
from letta_code.memory.git.search import search, search_history
from tests.memory.conftest import AGENT, SEED, Git

EVE = Author("Eve Ünal", "eve@example.org")


def test_log_filters_by_author_and_time_and_counts_what_it_found(
    repository: MemoryRepository, git: Git
) -> None:
    repository.commit(Replace("system/human", "tea", "cake"), "Cake", EVE)
    dated = {
        "GIT_AUTHOR_DATE": "2020-05-05T12:00:00+02:00",
        "GIT_COMMITTER_DATE": "2020-05-05T12:00:00+02:00",
    }
    (repository.worktree / "old.md").write_text("---\ndescription: Old.\n---\nold\n")
    git("add", "old.md")
    git("commit", "-qm", "Long ago", environment=dated)
    assert [made.reason for made in log(repository, author="eve ü")] == ["Cake"]
    assert [made.reason for made in log(repository, author="P@EXAMPLE")] == ["Long ago"]
    recent = log(repository, since=datetime(2021, 1, 1, tzinfo=UTC))
    assert [made.reason for made in recent] == ["Cake", "Begin"]
    assert [made.reason for made in log(repository, 1, since=datetime(2021, 1, 1, tzinfo=UTC))] == ["Cake"]
    exact = datetime.fromisoformat("2020-05-05T12:00:00+02:00")
    assert log(repository, since=exact)[0].when == "2020-05-05T12:00:00+02:00"


def test_a_file_is_followed_through_its_earlier_names(repository: MemoryRepository) -> None:
    repository.commit(Replace("reference/build", "make", "make all"), "All", AGENT)
    repository.commit(Rename("reference/build", "notes/how"), "Move", AGENT)
    repository.commit(Replace("notes/how", "make all", "ninja"), "Ninja", EVE)
    assert [made.reason for made in log(repository, path="notes/how.md")] == ["Ninja", "Move", "All", "Begin"]
    assert [made.reason for made in log(repository, path="reference/build.md")] == ["Move", "All", "Begin"]
    assert [made.reason for made in log(repository, path="notes")] == ["Ninja", "Move"]
    lines = blame(repository, "notes/how.md")
    assert [line.path for line in lines] == ["reference/build.md"] * 3 + ["notes/how.md"]
    assert (lines[-1].text, lines[-1].commit.reason, lines[-1].commit.author_name) == (
        "ninja",
        "Ninja",
        "Eve Ünal",
    )


def test_blame_says_reason_source_and_conversation(repository: MemoryRepository) -> None:
    origin = Provenance("agent-1", "conv-7", "call-1", "inferred")
    repository.commit(
        Replace("system/human", "Likes tea.", "Likes tea.\nHates rain."), "Said so", EVE, origin
    )
    last = blame(repository, "system/human.md")[-1]
    assert (last.number, last.text) == (6, "Hates rain.")
    assert last.commit.trailers["Letta-Source"] == "inferred"
    assert last.commit.trailers["Letta-Conversation"] == "conv-7"
    with pytest.raises(MemoryStoreError, match="no file"):
        blame(repository, "system/nobody.md")
    assert blame(repository, "system/human.md", "HEAD~1")[-1].commit.reason == "Begin"


def test_an_empty_file_has_no_lines_to_blame(repository: MemoryRepository, git: Git) -> None:
    (repository.worktree / "empty.txt").write_bytes(b"")
    git("add", "empty.txt")
    git("commit", "-qm", "Empty")
    assert blame(repository, "empty.txt") == ()


def test_e32_what_was_just_written_is_found_with_its_commit(repository: MemoryRepository) -> None:
    made = repository.commit(Create("projects/x/deploy", "Deployment of X.", "Uses Fly.IO.\n"), "x", AGENT)
    assert [(hit.path, hit.line) for hit in search(repository, "fly.io")] == [("projects/x/deploy.md", 4)]
    assert [hit.line for hit in search(repository, "DEPLOYMENT")] == [2]
    assert [hit.line for hit in search(repository, "x/Deploy")] == [0]
    assert blame(repository, "projects/x/deploy.md")[3].commit == made
    assert search(repository, "fly.io", "HEAD~1") == ()


def test_search_ignores_case_and_unicode_form(repository: MemoryRepository) -> None:
    repository.commit(Create("notes/a", "d", "Cafe\u0301 STRASSE\n"), "x", AGENT)
    assert [hit.line for hit in search(repository, "café")] == [4]
    assert [hit.line for hit in search(repository, "straße")] == [4]
    repository.commit(Create("notes/b", "d", "İZMİR 記憶 a.*b [x]\\d\n"), "x", AGENT)
    for text in ("izmir", "İzmir", "記憶", ".*", "[x]\\d"):
        assert [(hit.path, hit.line) for hit in search(repository, text)] == [("notes/b.md", 4)]


def test_search_of_the_past_names_who_added_and_who_removed(repository: MemoryRepository) -> None:
    added = repository.commit(Replace("system/human", "tea", "Rooibos"), "In", AGENT)
    removed = repository.commit(Replace("system/human", "Rooibos", "water"), "Out", EVE)
    again = repository.commit(Create("notes/r", "d", "rooibos, again\n"), "Back", EVE)
    found = search_history(repository, "ROOIBOS")
    assert [(p.path, p.text, p.added, p.removed) for p in found] == [
        ("notes/r.md", "rooibos, again", again, None),
        ("system/human.md", "Likes Rooibos.", added, removed),
    ]
    repository.commit(Delete("notes/r"), "Gone", AGENT)
    gone = search_history(repository, "again")[0].removed
    assert gone is not None
    assert gone.reason == "Gone"


def test_search_of_the_past_counts_a_merge_once(repository: MemoryRepository, git: Git) -> None:
    git("switch", "-qc", "side")
    (repository.worktree / "side.md").write_text("---\ndescription: s\n---\nwalnut\n")
    git("add", "side.md")
    git("commit", "-qm", "Side")
    git("switch", "-q", "main")
    repository.commit(Replace("system/human", "tea", "cake"), "Main", AGENT)
    git("merge", "-q", "--no-edit", "side")
    (passage,) = search_history(repository, "walnut")
    assert (passage.added.reason, passage.removed) == ("Side", None)
    assert [made.reason for made in log(repository, path="side.md")] == ["Side"]


def test_the_first_commit_has_a_diff(repository: MemoryRepository) -> None:
    patch = diff_of(repository, "HEAD")
    assert patch.count("new file mode") == len(SEED)
    assert "+Likes tea." in patch


LINE = st.sampled_from(["", "a", "b", "c", "  a", "}", "tea é"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["edit", "edit", "edit", "other", "rename", "branch", "merge"]),
        st.lists(LINE, max_size=12),
    ),
    min_size=1,
    max_size=14,
)


@given(STEPS, st.lists(LINE, min_size=1, max_size=12))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_blame_and_log_are_those_of_git(steps: Sequence[tuple[str, list[str]]], first: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = {"notes/a.md": text_of(first), "other.md": text_of(["x"])}
        repository = MemoryRepository.create(root / "repo.git", root / "memory", files, AGENT, "Begin")
        path = played(repository.git, steps)
        ours = [line.commit.revision for line in blame(repository, path)]
        reported = git_in(repository, "blame", "-s", "-l", "--root", "HEAD", "--", path)
        assert ours == [line.split(" ", 1)[0] for line in reported.splitlines()]
        everything = git_in(repository, "log", "--format=%H").split()
        assert [made.revision for made in log(repository, 1000)] == everything


def text_of(lines: Sequence[str]) -> str:
    return "---\ndescription: d\n---\n" + "".join(f"{line}\n" for line in lines)


def played(git: pygit2.Repository, steps: Sequence[tuple[str, list[str]]]) -> str:
    """Make a history of the steps, one second between commits; the path of the file at its end."""
    path, number, main = "notes/a.md", 0, git.revparse_single("HEAD").id
    side: pygit2.Oid | None = None
    for number, (what, lines) in enumerate(steps, 1):
        tip = git[main].peel(pygit2.Commit)
        files = {name: git.read(tip.tree[name].id)[1] for name in (path, "other.md")}
        parents = [main]
        if what == "branch" and side is None:
            side = main
            continue
        if what == "branch" and side is not None:
            there = git[side].peel(pygit2.Commit)
            mine = {path: text_of(lines).encode(), "other.md": git.read(there.tree["other.md"].id)[1]}
            side = committed(git, mine, [side], number)
            continue
        if what == "edit":
            files[path] = text_of(lines).encode()
        elif what == "other":
            files["other.md"] = text_of(lines).encode()
        elif what == "rename" and side is None:  # what is alike to a half is for Git and libgit2 to say
            files[f"notes/{number}.md"] = files.pop(path)
            path = f"notes/{number}.md"
        elif side is not None and side != main:
            files[path] = text_of(lines).encode()
            parents, side = [main, side], None
        else:
            continue
        main = committed(git, files, parents, number)
    git.references["refs/heads/main"].set_target(main)
    return path


def committed(
    git: pygit2.Repository, files: dict[str, bytes], parents: list[pygit2.Oid], number: int
) -> pygit2.Oid:
    index = pygit2.Index()
    for name, data in files.items():
        index.add(pygit2.IndexEntry(name, git.create_blob(data), pygit2.enums.FileMode.BLOB))
    who = pygit2.Signature("a", "a@x", 2_000_000_000 + number, 0)
    return git.create_commit(None, who, who, f"{number}\n", index.write_tree(git), parents)


def git_in(repository: MemoryRepository, *words: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", str(repository.git_dir), *words],
        cwd=repository.worktree,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode("utf-8")


@pytest.mark.parametrize("seconds", [-(10**11), -5, 10**11, 10**12])
def test_a_clock_that_was_wrong_stops_nothing(repository: MemoryRepository, git: Git, seconds: int) -> None:
    first = repository.describe(repository.head())
    tree = git("rev-parse", "HEAD^{tree}").strip()
    who = f"A <a@example.org> {seconds} +0000"
    (repository.git_dir / "odd").write_text(
        f"tree {tree}\nparent {first.revision}\nauthor {who}\ncommitter {who}\n\nOdd\n"
    )
    odd = git("hash-object", "-t", "commit", "-w", "--literally", str(repository.git_dir / "odd")).strip()
    git("update-ref", "HEAD", odd)
    assert [made.revision for made in log(repository)] == [odd, first.revision]
    assert log(repository, 1, revision=first.revision) == (first,)
    since = datetime(2001, 1, 1, tzinfo=UTC)
    assert len(log(repository, since=since)) == (2 if seconds > 0 else 1)
    assert blame(repository, "system/human.md")[0].commit == first
    stamp = datetime.fromisoformat(log(repository, 1)[0].when).timestamp()
    write_archive(repository.git_dir / "x.zip", {"a.md": b""}, odd, int(stamp))
