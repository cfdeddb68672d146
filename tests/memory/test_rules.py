from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import parse_block
from letta_code.memory.edits import Create, Delete, Describe, Edit, Insert, Rename, Replace
from letta_code.memory.git.objects import MANY, GitObjects, tree_with, written_together
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.render import render_memory, render_update
from letta_code.memory.rules import PERSON, check, clashes, problems_of
from letta_code.memory.snapshot import MemorySnapshot, SnapshotFiles
from tests.memory.conftest import AGENT, Git

GUARDED = "---\ndescription: d\nread_only: true\n---\nhers\n"
LONG = "---\ndescription: d\nlimit: 5\n---\n0123456789\n"
GOOD, BAD = "---\ndescription: d\n---\nthe good text\n", "---\ndescription: [\n---\nbroken\n"


def _commit(repository: MemoryRepository, git: Git, path: str, data: str | bytes, *flags: str) -> str:
    file = repository.worktree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    git("add", "-A")
    git("commit", "-qm", "by hand", "--no-verify", *flags)
    return repository.head()


@pytest.mark.parametrize(
    "edit",
    [
        Replace("rules/house", "hers", "mine"),
        Insert("rules/house", 1, "mine"),
        Describe("rules/house", "mine"),
        Delete("rules/house"),
        Delete("rules"),
        Rename("rules/house", "rules/other"),
        Rename("rules", "laws"),
    ],
)
def test_what_only_a_person_may_change_is_kept_from_the_agent(
    repository: MemoryRepository, git: Git, edit: Edit
) -> None:
    before = _commit(repository, git, "rules/house.md", GUARDED)
    with pytest.raises(MemoryEditError, match=r"rules/house\.md: is read-only"):
        repository.commit(edit, "x", AGENT)
    assert repository.head() == before
    assert repository.status() == ()
    assert repository.commit(edit, "x", AGENT, overrides=PERSON).revision == repository.head()


def test_the_agent_cannot_take_the_flag_away_with_a_draft(repository: MemoryRepository, git: Git) -> None:
    _commit(repository, git, "rules/house.md", GUARDED)
    file = repository.worktree / "rules/house.md"
    file.write_text(GUARDED.replace("true", "false"))
    with pytest.raises(MemoryEditError, match="is read-only"):
        repository.commit_drafts("x", AGENT)
    assert file.read_text() == GUARDED.replace("true", "false")
    repository.commit_drafts("x", AGENT, overrides=PERSON)
    repository.commit(Replace("rules/house", "hers", "mine"), "x", AGENT)


def test_a_text_over_its_limit_may_shrink_and_not_grow(repository: MemoryRepository, git: Git) -> None:
    _commit(repository, git, "notes/long.md", LONG)
    with pytest.raises(MemoryEditError, match="its limit is 5"):
        repository.commit(Replace("notes/long", "9", "90"), "x", AGENT)
    repository.commit(Replace("notes/long", "89", ""), "shorter", AGENT)
    repository.commit(Describe("notes/long", "as long as before"), "x", AGENT)
    repository.commit(Replace("notes/long", "34567\n", ""), "short enough", AGENT)
    with pytest.raises(MemoryEditError, match="its limit is 5"):
        repository.commit(Replace("notes/long", "012", "0123456"), "x", AGENT)
    repository.commit(Replace("notes/long", "012", "0123456"), "x", AGENT, overrides=frozenset({"limit"}))


def test_a_key_twice_is_read_reported_and_not_written_anew(repository: MemoryRepository, git: Git) -> None:
    twice = "---\ndescription: a\ncustom: 1\ndescription: b\n---\nwords\n"
    assert "'description' twice" in problems_of({}, {"a.md": twice.encode()})[0]
    _commit(repository, git, "system/a.md", twice)
    snapshot = repository.snapshot()
    block = next(block for block in snapshot.blocks if block.path == "system/a.md")
    assert (block.description, block.body, block.repeated) == ("b", "words\n", ("description",))
    assert [p.message for p in snapshot.problems] == [
        "the front matter has the key 'description' twice; the last one counts"
    ]
    repository.commit(Replace("system/a", "words", "other words"), "x", AGENT)
    with pytest.raises(MemoryEditError, match="twice; delete one of them first"):
        repository.commit(Describe("system/a", "c"), "x", AGENT)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (BAD, "not valid YAML"),
        ("hé".encode("utf-16"), "UTF-16"),
        (b"a\0b", "NUL"),
        (b"caf\xe9", "not UTF-8"),
        (b"<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x\n", "conflict markers"),
    ],
)
def test_e03_the_last_good_text_stays_in_the_prompt(
    repository: MemoryRepository, git: Git, data: str | bytes, says: str
) -> None:
    good = _commit(repository, git, "system/a.md", GOOD)
    old = repository.snapshot()
    _commit(repository, git, "system/a.md", data)
    _commit(repository, git, "other.txt", "x")
    bad = _commit(
        repository, git, "system/a.md", (data.encode() if isinstance(data, str) else data) + b"more"
    )
    snapshot = repository.snapshot()
    text = render_memory(snapshot)
    assert "the good text" in text
    (problem,) = snapshot.problems
    assert says in problem.message
    assert problem.message.endswith(f"; this is its text as of {good[:7]}")
    assert "<problems>" in text
    update = render_update(old, snapshot)
    assert "<problems>" in update
    assert "the good text" not in update
    assert render_memory(MemoryRepository.open(repository.git_dir).snapshot(bad)) == text
    assert says in problems_of({}, {"a.md": data.encode() if isinstance(data, str) else data})[0]
    _commit(repository, git, "system/a.md", GOOD.replace("good", "new"))
    assert repository.snapshot().problems == ()
    assert "the new text" in render_memory(repository.snapshot())


def test_a_block_that_never_could_be_read_is_a_problem_without_text(
    repository: MemoryRepository, git: Git
) -> None:
    _commit(repository, git, "system/a.md", BAD)
    (problem,) = repository.snapshot().problems
    assert "as of" not in problem.message
    assert "broken" not in render_memory(repository.snapshot())


def test_a_hidden_block_is_not_in_the_prompt_nor_in_an_update(repository: MemoryRepository, git: Git) -> None:
    _commit(repository, git, "system/a.md", GOOD)
    old = repository.snapshot()
    _commit(repository, git, "system/a.md", GOOD.replace("---\nthe", "hidden: true\n---\nthe"))
    text = render_memory(repository.snapshot())
    assert "the good text" not in text
    assert "system/a.md" not in text
    assert "<removed>\nsystem/a.md\n</removed>" in render_update(old, repository.snapshot())


def test_names_that_collide_are_refused_and_reported(repository: MemoryRepository, git: Git) -> None:
    for name in ("system/Human", "System/x", "system/HUMAN"):
        with pytest.raises(MemoryEditError, match="only in case or Unicode form"):
            repository.commit(Create(name, "d", "x"), "x", AGENT)
    _commit(repository, git, "system/Human.md", GOOD)
    (problem,) = repository.snapshot().problems
    assert "differs from 'system/Human.md' only in case" in problem.message


_SETS = st.sets(
    st.lists(st.sampled_from(["a", "A", "é", "e\u0301", "b.md"]), min_size=1, max_size=3).map("/".join),
    max_size=6,
)


def test_a_name_is_compared_with_its_neighbours_alone_as_if_with_all(tmp_path: Path) -> None:
    git = pygit2.init_repository(str(tmp_path / "repo.git"), bare=True)
    objects, blob = GitObjects(git), str(git.create_blob(b"x"))

    @given(_SETS, _SETS, _SETS)
    def compared(kept: set[str], deleted: set[str], added: set[str]) -> None:
        files: dict[str, bytes] = {}
        for path in sorted(kept):
            if not clashes([*files, path]):
                files[path] = b"x"
        with written_together(MANY):
            tree = tree_with(git, None, {path: (blob, 0o100644) for path in files})
        changes: dict[str, bytes | None] = {path: None for path in sorted(deleted & files.keys())}
        changes |= {path: b"x" for path in sorted(added)}
        in_git = SnapshotFiles(MemorySnapshot("", tree, objects))
        assert problems_of(in_git, changes) == problems_of(files, changes)

    compared()


def test_e20_broken_front_matter_is_refused_and_the_bytes_stay(repository: MemoryRepository) -> None:
    file = repository.worktree / "system/human.md"
    before, head = file.read_bytes(), repository.head()
    draft = before.replace(b"The person.", b'"abc "def" ghi"')
    file.write_bytes(draft)
    with pytest.raises(MemoryEditError, match=r"system/human\.md: the front matter is not valid YAML"):
        repository.commit_drafts("x", AGENT)
    assert (file.read_bytes(), repository.head()) == (draft, head)
    with pytest.raises(MemoryEditError, match="draft"):
        repository.commit(Replace("system/human", "tea", "cake"), "x", AGENT)
    assert file.read_bytes() == draft


def test_e37_a_reason_with_a_secret_is_refused_and_masked(repository: MemoryRepository) -> None:
    token = "ghp_aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3hJ5"
    head = repository.head()
    for edit, reason in ((Replace("system/human", "tea", "cake"), f"she said {token}"),
                         (Replace("system/human", "tea", token), "she said"),
                         (Create(token, "d", "x"), "she said"),
                         (Replace(f"a/{token}", "x", "y"), "she said"),
                         (Delete(f"a/{token}/"), "she said")):  # fmt: skip
        with pytest.raises(MemoryEditError) as refused:
            repository.commit(edit, reason, AGENT)
        assert token[8:] not in refused.value.message + refused.value.hint
        assert "ghp_…" in refused.value.message
    assert repository.head() == head
    made = repository.commit(
        Replace("system/persona", "careful", token), "x", AGENT, overrides=frozenset({"secret"})
    )
    assert made.revision == repository.head()


keys = st.sampled_from(["description", "custom", "limit", "metadata", "owner", "read_only"])
lines = st.sampled_from(
    [
        "{key}: plain words{nl}",
        "{key}: 'it''s quoted'{nl}",
        '{key}: "a: b # c"{nl}',
        "{key}: >{nl}  folded{nl}  words{nl}",
        "{key}: |-{nl}  kept{nl}{nl}  lines{nl}",
        "{key}:   spaced   # with a comment{nl}",
        "# only a comment{nl}{key}: x y{nl}",
    ]
)


@given(
    st.lists(st.tuples(keys, lines), max_size=4, unique_by=lambda item: item[0]),
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40
    ).filter(str.strip),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    st.sampled_from(["", "\ufeff"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_e19_a_description_changes_its_own_lines_alone(
    written: list[tuple[str, Callable[..., str]]], new: str, body: str, bom: str, nl: str
) -> None:
    others = {
        "limit": "limit: 9999{nl}",
        "metadata": "metadata: {{a: [1, 2]}}{nl}",
        "read_only": "read_only: no{nl}",
    }
    parts = [others.get(key, str(line)).format(key=key, nl=nl) for key, line in written]
    before = f"{bom}---{nl}{''.join(parts)}---{nl}{body}"
    after = parse_block("a.md", before.encode()).with_description(new).decode()
    own = [i for i, (key, _) in enumerate(written) if key == "description"]
    at = own[0] if own else 0
    comment = f"# only a comment{nl}" if own and parts[at].startswith("#") else ""
    head = f"{bom}---{nl}{''.join(parts[:at])}{comment}description:"
    tail = f"{''.join(parts[at + len(own) :])}---{nl}{body}"
    assert after.startswith(head)
    assert after.endswith(tail)
    assert after[len(head) : len(after) - len(tail)].count("\n") == 1
    read = parse_block("a.md", after.encode())
    assert (read.description, read.body) == (new.strip(), body)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_judged_without_a_crash(old: bytes, new: bytes) -> None:
    if not problems_of({"a.md": old}, {"a.md": new, "b.txt": new}):
        assert parse_block("a.md", new).text.encode() == new
        check({"a.md": old}, {"a.md": new})
