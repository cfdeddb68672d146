"""Passages in their file: what is kept, what is found, and what two processes or a kill do to it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.archive.passages import LONGEST, ArchiveError, Passage, Wanted, narrowed, new_passage
from letta_code.archive.store import SqliteArchive
from letta_code.archive.transfer import lines, read_lines
from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.errors import StorageError
from tests.cli.harness import ROOT

ANN, BOB = AgentKey(DEFAULT_ORG, "agent-ann"), AgentKey(DEFAULT_ORG, "agent-bob")


@pytest.fixture
def store(tmp_path: Path) -> SqliteArchive:
    return SqliteArchive(tmp_path / "data" / "archive.db")


def keep(store: SqliteArchive, text: str, *tags: str, at: str = "", key: AgentKey = ANN) -> Passage:
    passage = new_passage(text, tags, "inferred")
    passage = replace(passage, created_at=at or passage.created_at)
    return store.insert(key, [passage])[0].passage


def texts(passages: Sequence[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def test_an_archive_that_nothing_was_put_into_answers_and_makes_no_file(
    store: SqliteArchive, tmp_path: Path
) -> None:
    assert store.newest(ANN, Wanted()) == store.by_words(ANN, "x", Wanted(), 5) == []
    assert store.counts(ANN).passages == store.delete_all(ANN) == 0
    assert store.by_meaning(ANN, "m", b"1234", Wanted(), 5) == store.without_vector(ANN, "m") == []
    with pytest.raises(ArchiveError):
        store.get(ANN, "passage-1")
    assert not (tmp_path / "data").exists()


def test_the_same_text_is_kept_once_and_its_tags_are_joined(store: SqliteArchive) -> None:
    first = keep(store, "The user likes\njasmine tea.", "Tea", " the  User ")
    (again,) = store.insert(ANN, [new_passage("the USER likes jasmine  tea.", ["tea", "green"], "inferred")])
    assert (again.new, again.added) == (False, ("green",))
    assert again.passage == replace(first, tags=("tea", "the user", "green")) == store.get(ANN, first.id)
    assert keep(store, "the user likes jasmine tea.", key=BOB).id != first.id
    assert store.counts(ANN).tags == (("green", 1), ("tea", 1), ("the user", 1))


def test_passages_are_narrowed_by_tags_and_time(store: SqliteArchive) -> None:
    keep(store, "one", "a", at="2026-01-01T00:00:00Z")
    keep(store, "two", "a", "b", at="2026-01-02T12:00:00Z")
    keep(store, "three", "b", at="2026-01-03T00:00:00Z")
    cases = [
        (Wanted(), ["three", "two", "one"]),
        (Wanted(("a",)), ["two", "one"]),
        (Wanted(("a", "b")), ["three", "two", "one"]),
        (Wanted(("a", "b"), every=True), ["two"]),
        (Wanted(("c",)), []),
        (Wanted(start="2026-01-02T12:00:00Z"), ["three", "two"]),
        (Wanted(end="2026-01-02T12:00:00Z"), ["one"]),
        (Wanted(("b",), start="2026-01-02T00:00:00Z", end="2026-01-03T00:00:00Z"), ["two"]),
        (narrowed([], False, "0001-01-01", "9999-12-31"), ["three", "two", "one"]),
        (
            narrowed([], False, "0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-12:00"),
            ["three", "two", "one"],
        ),
        (narrowed([" A"], False, "2026-01-01T00:00:00Z", "2026-01-03T00:00:00+00:00"), ["two", "one"]),
    ]
    for wanted, expected in cases:
        assert texts(store.newest(ANN, wanted)) == expected, wanted
        assert sorted(texts(store.by_words(ANN, "one two three", wanted, 9))) == sorted(expected), wanted
    assert texts(store.newest(ANN, Wanted(), 1)) == ["three"]
    for bad in ("yesterday", "2026-13-01", "\ud800"):
        with pytest.raises(ArchiveError, match="no date or time"):
            narrowed([], False, bad, "")


def test_words_of_every_script_are_found(store: SqliteArchive) -> None:
    for text in (
        "用户喜欢茉莉花茶，不喝咖啡",
        "毎週金曜日にデプロイする",
        "배포는 금요일에 합니다",
        "Deploy with scripts/deploy_all.sh and call getUserName()",
        "🎉 the launch went well",
        "Café crème at noon",
    ):
        keep(store, text)
    cases = {
        "茉莉": "用户",
        "茶": "用户",
        "咖啡": "用户",
        "デプロイ": "毎週",
        "金曜": "毎週",
        "금요일": "배포",
        "deploy_all.sh": "Deploy",
        "GETUSERNAME": "Deploy",
        "🎉": "🎉",
        "cafe": "Café",
        'launch" OR (*': "🎉",
    }
    for query, start in cases.items():
        found = store.by_words(ANN, query, Wanted(), 5)
        assert found, query
        assert found[0].text.startswith(start), query
    assert store.by_words(ANN, "Zürich ?!", Wanted(), 5) == store.by_words(ANN, "", Wanted(), 5) == []


def test_what_is_no_passage_is_refused(store: SqliteArchive) -> None:
    for text, tags, words in (
        (" \n", [], "empty"),
        ("x" * (LONGEST + 1), [], "4,001 characters"),
        ("x", ["y" * 61], "61 characters"),
        ("x", [f"tag {number}" for number in range(21)], "21 tags"),
    ):
        with pytest.raises(ArchiveError, match=words):
            new_passage(text, tags, "inferred")
    assert new_passage("\ud800 x", ["\ud800"], "inferred").text == "? x"


def test_an_id_may_be_shortened_where_only_one_of_the_agents_own_begins_so(store: SqliteArchive) -> None:
    one, other = keep(store, "one"), keep(store, "two")
    assert store.get(ANN, one.id) == store.get(ANN, one.id.removeprefix("passage-")) == one
    assert store.get(ANN, one.id[:-1]) == one
    for wrong in ("passage-", "", "%", one.id + "0"):
        with pytest.raises(ArchiveError):
            store.get(ANN, wrong)
    with pytest.raises(ArchiveError):
        store.get(BOB, other.id)
    store.delete(BOB, other.id)
    store.delete(ANN, one.id)
    assert texts(store.newest(ANN, Wanted())) == ["two"]
    assert store.by_words(ANN, "one", Wanted(), 5) == []


def test_what_is_exported_comes_back_as_it_was(store: SqliteArchive, tmp_path: Path) -> None:
    keep(store, "one\nline two", "a", "b", at="2024-02-29T01:02:03Z")
    keep(store, "二")
    exported = list(lines(store.newest(ANN, Wanted())))
    other = SqliteArchive(tmp_path / "other.db")
    assert all(item.new for item in other.insert(ANN, read_lines(exported)))
    assert other.newest(ANN, Wanted()) == store.newest(ANN, Wanted())
    assert not any(item.new for item in other.insert(ANN, read_lines(exported)))
    # Ids are everybody's: who takes another agent's passages gets ids of their own.
    (made, _) = other.insert(BOB, read_lines(exported))
    assert made.new
    assert made.passage.id not in {passage.id for passage in other.newest(ANN, Wanted())}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "1",
        '{"text": 1}',
        '{"text": " "}',
        '{"text": "x", "tags": "a"}',
        '{"text": "x", "tags": [1]}',
        '{"text": "x", "source": "hearsay"}',
        '{"text": "x", "id": "../x"}',
        '{"text": "x", "created_at": "then"}',
        '{"text": "x", "pointer": "a\\nb"}',
        "[" * 5000,
    ],
)
def test_a_line_that_is_no_passage_is_named(line: str) -> None:
    with pytest.raises(ArchiveError, match="line 2"):
        read_lines(['{"text": "fine"}', line])


def test_a_file_that_is_no_database_is_said_and_left_alone(store: SqliteArchive, tmp_path: Path) -> None:
    file = tmp_path / "data" / "archive.db"
    file.parent.mkdir()
    file.write_bytes(b"once upon a time " * 500)
    with pytest.raises(StorageError, match="damaged"):
        store.counts(ANN)
    with pytest.raises(StorageError, match="damaged"):
        keep(store, "x")
    assert file.read_bytes() == b"once upon a time " * 500


def test_processes_write_at_once_and_a_kill_leaves_whole_insertions(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    command = [sys.executable, "-W", "error", "-m", "tests.archive.writer", str(file)]
    with (
        subprocess.Popen([*command, "ann", "8"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as whole,
        subprocess.Popen([*command, "bob"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed,
    ):
        assert killed.stdout is not None
        told = [killed.stdout.readline() for _ in range(5)]
        killed.kill()
        told += killed.stdout.readlines()
        whole.communicate()
    assert whole.returncode == 0
    passages = SqliteArchive(file).newest(AgentKey(DEFAULT_ORG, "agent-1"), Wanted())
    batches = Counter(tuple(passage.text.split()[:3]) for passage in passages)
    assert set(batches.values()) == {3}
    kept = {batch for who, _, batch in batches if who == "bob"}
    assert kept >= {line.strip() for line in told if line.endswith("\n")}
    assert sum(who == "ann" for who, _, _ in batches) == 8
    found = SqliteArchive(file).by_words(AgentKey(DEFAULT_ORG, "agent-1"), "batch", Wanted(), 10_000)
    assert len(found) == len(passages)


WORDS = st.sampled_from(["tea", "Tea", "coffee", "用户", "茶", "a_b"])
TEXT = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
STEP = st.tuples(
    st.sampled_from(["insert", "delete", "wipe"]),
    st.sampled_from([ANN, BOB]),
    TEXT,
    st.lists(st.sampled_from(["x", "Y", "z"]), max_size=2),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(STEP, max_size=8))
def test_whatever_is_done_each_agent_has_what_it_kept_and_nothing_else(
    steps: list[tuple[str, AgentKey, str, list[str]]],
) -> None:
    with TemporaryDirectory() as folder:
        store = SqliteArchive(Path(folder) / "archive.db")
        held: dict[AgentKey, dict[str, set[str]]] = {ANN: {}, BOB: {}}
        for action, key, text, tags in steps:
            folded = text.casefold()
            if action == "insert":
                (item,) = store.insert(key, [new_passage(text, tags, "inferred")])
                assert item.new == (folded not in held[key])
                held[key].setdefault(folded, set()).update(tag.casefold() for tag in tags)
            elif action == "delete":
                for passage in store.newest(key, Wanted()):
                    if passage.text.casefold() == folded:
                        store.delete(key, passage.id)
                held[key].pop(folded, None)
            else:
                assert store.delete_all(key) == len(held[key])
                held[key].clear()
        for key, mine in held.items():
            passages = store.newest(key, Wanted())
            assert {passage.text.casefold(): set(passage.tags) for passage in passages} == mine
            assert len(passages) == len(mine) == store.counts(key).passages
            for word in ("tea", "coffee", "茶"):
                found = store.by_words(key, word, Wanted(), 99)
                assert {passage.text.casefold() for passage in found} == {
                    text for text in mine if word in text
                }
            for tag in ("x", "y", "z"):
                tagged = store.newest(key, Wanted((tag,)))
                assert len(tagged) == sum(tag in tags for tags in mine.values())
        rows = _left(Path(folder) / "archive.db")
        assert rows == sum(map(len, held.values()))


def _left(file: Path) -> int:
    """Rows of the word index: deleting leaves none behind."""
    if not file.exists():
        return 0
    connection = sqlite3.connect(file)
    try:
        count: int = connection.execute("SELECT count(*) FROM words").fetchone()[0]
        return count
    finally:
        connection.close()
