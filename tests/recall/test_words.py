"""What is in a message is found by its words, in any script; no query is an error."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from letta_code.core.terms import indexed, name_parts, terms
from tests.recall.support import Memories

SCRIPTS = st.sampled_from(
    [
        st.text("记忆系统的数据库迁移备份方案，。 "),
        st.text("データベースをﾊﾞｯｸｱｯﾌﾟする、 "),
        st.text("메모리를 저장하고 검색합니다 "),
        st.text("สวัสดีครับ ความจำ"),
        st.text("हिन्दी में स्मृति "),
        st.text("ÉéİıßΣς ñ\u0301ﬁ Ёё ﷺ ½"),
        st.text("aB_z.9/-()\"'*:🎉👨‍👩‍👧✓ é语"),
        st.text(),
    ]
).flatmap(lambda strategy: strategy)


@pytest.fixture(scope="module")
def memories() -> Iterator[Memories]:
    with tempfile.TemporaryDirectory() as folder:
        yield Memories.at(Path(folder))


@settings(max_examples=30, deadline=None)
@given(text=SCRIPTS, data=st.data())
def test_what_is_in_a_message_is_found_by_any_of_its_words(
    memories: Memories, text: str, data: st.DataObject
) -> None:
    text = f"begin {text}"
    conversation = memories.told(text, "something else")
    words = [word for word in text.split() if terms(word)]
    unspaced = re.findall("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+", normalize("NFKC", text))
    if unspaced:
        run = data.draw(st.sampled_from(unspaced))
        start = data.draw(st.integers(0, len(run) - 1))
        words.append(run[start : data.draw(st.integers(start + 1, len(run)))])
    for word in words[-4:]:
        found = memories.search(word, conversation=conversation.id)
        assert found.hits[0].whole, word
        assert found.hits[0].entry.message.text == text.encode("utf-8", "replace").decode()
        assert len(found.hits[0].snippet.pieces) > 1, word


@given(text=SCRIPTS)
@example(text="aA")
@example(text=f"{'aB' * 40} x")
@settings(max_examples=100, deadline=None)
def test_the_terms_of_a_text_are_the_same_with_their_places_and_without(text: str) -> None:
    body = re.findall("[a-z0-9\u0080-\U0010ffff]+", indexed(text).lower())
    parts = [part.text for part in name_parts(text)]
    wanted = [term.text for term in terms(text)]
    assert body[: len(wanted)] == wanted
    assert set(body[len(wanted) :]) == ({"\u00a6", *parts} if parts else set())


@settings(max_examples=50, deadline=None)
@given(
    query=st.text(st.characters(codec=None)) | st.text("\"*()-:^{}+ANDORNEAR'\\;\0 记a", max_size=60),
    times=st.sampled_from([1, 1, 400]),
)
def test_no_query_is_an_error(memories: Memories, query: str, times: int) -> None:
    memories.search((query * times)[:10_000], limit=3)


def test_no_query_is_an_error_that_people_have_written(memories: Memories) -> None:
    for query in (
        *(
            '"',
            '"""',
            "*",
            "***",
            "a*b",
            "(",
            ")",
            "a AND",
            "OR",
            "NOT a",
            "NEAR(a b)",
            "a NEAR/2 b",
            "-",
            "-a",
        ),
        *(
            "user:",
            "user : x",
            "{user} : x",
            "^a",
            "a + b",
            "\0",
            "a\0b",
            "\ud800",
            "\udfff x",
            "'; DROP TABLE words",
        ),
        *(
            "%",
            "_",
            "\\",
            "“",
            "“unfinished",
            '"unfinished',
            "",
            " ",
            "\n",
            "x" * 10_000,
            "长" * 10_000,
            "a " * 5_000,
        ),
    ):
        memories.search(query)


def test_words_as_people_ask_for_them(tmp_path: Path) -> None:
    memories = Memories.at(tmp_path)
    texts = {
        "zh": "我们上次讨论了数据库迁移的方案，决定先备份再执行。",
        "ja": "設定ファイルをﾃﾞｰﾀﾍﾞｰｽに保存しました。",
        "ko": "메모리를 저장하고 검색합니다",
        "th": "ระบบความจำของตัวแทน",
        "fr": "Le café est fermé; naïve façade, STRASSE",
        "emoji": "shipped 🎉🚀 today",
        "code": "fix getUserName in HTMLParser.parse(), foo_bar and src/a/b.py:12",
        "error": "error[E0502]: cannot borrow `x`, at 0x7fff12ab, commit 3f2a9c1de0",
        "english": "The servers were restarted after deploying",
    }
    memories.told(*texts.values())
    for query, name in (
        *(("迁移", "zh"), ("数据库", "zh"), ("库", "zh"), ("备份再执行", "zh"), ("方案 迁移", "zh")),
        *(("データベース", "ja"), ("保存", "ja"), ("ファイル", "ja")),
        *(("메모리", "ko"), ("검색", "ko"), ("ความจำ", "th")),
        *(("CAFÉ", "fr"), ("cafe ferme", "fr"), ("facade", "fr"), ("straße", "fr")),
        *(("🎉", "emoji"), ("🚀", "emoji"), ("🎉🚀", "emoji")),
        *(("getUserName", "code"), ("getusername", "code"), ("user name", "code"), ("getUser", "code")),
        *(("HTMLParser", "code"), ("html", "code"), ("foo_bar", "code"), ("bar", "code"), ("b.py", "code")),
        *(
            ("src/a/b.py", "code"),
            ("src/a/b.py:12", "code"),
            ("HTMLParser.parse()", "code"),
            ("pars*", "code"),
        ),
        *(("E0502", "error"), ("e0502", "error"), ("0x7fff12ab", "error"), ("3f2a9*", "error")),
        *(('"cannot borrow"', "error"), ("“cannot borrow”", "error")),
        *(("server", "english"), ("deploy restart", "english"), ("restarting", "english")),
    ):
        assert memories.texts(query) == [texts[name]], query
    for query in ('"borrow cannot"', "库数", "移迁", "foo_baz", "E050", "🚀🎉"):
        assert memories.texts(query) == [], query


def test_what_has_some_of_the_words_comes_behind_what_has_all(tmp_path: Path) -> None:
    memories = Memories.at(tmp_path)
    memories.told("the invoice of march", "the invoice parser fails", "why do invoices of the parser matter?")
    found = memories.search("invoice parser fails today")
    assert (found.total, [hit.whole for hit in found.hits]) == (0, [False] * 3)
    assert found.hits[0].entry.message.text == "the invoice parser fails"
    found = memories.search("invoice parser")
    assert (found.total, [hit.whole for hit in found.hits]) == (2, [True, True, False])


def test_the_snippet_is_the_part_with_most_of_the_words(tmp_path: Path) -> None:
    memories = Memories.at(tmp_path)
    memories.told(f"heron {'filler ' * 200}\n\n  the heron\tserver is grey {'filler ' * 200}")
    (hit,) = memories.search("heron server").hits
    shown = hit.snippet.marked("[", "]")
    assert "the [heron] [server] is grey" in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(shown) < 400


def test_what_is_far_inside_a_long_message_is_shown(tmp_path: Path) -> None:
    memories = Memories.at(tmp_path)
    filler = "getLorem ipsum 记忆 "
    marks = [f"bird{number} fish{number}" for number in range(5)]
    said = "".join(f"{filler * (200 + 37 * number)}the {mark} fly " for number, mark in enumerate(marks))
    memories.told(f"{said}{filler * 400}the last word: 系统猫狗")
    for mark in marks:
        (hit,) = memories.search(f'"{mark}"').hits
        assert f"the [{mark}] fly" in hit.snippet.marked("[", "]")
        assert len(hit.snippet.pieces) == 3
    (hit,) = memories.search("last getLorem 猫狗").hits
    assert hit.snippet.marked("[", "]").endswith("the [last] word: 系统[猫狗]")
