"""How an answer is cut into blocks while it arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from letta_code.frontends.screen import Stream

WORDS = st.sampled_from(
    ("a", "-", "1", ">", " ", "\t", "\n", "\n\n", "b\r\n", "# h", "```", "```py\n", "~~~~", "text\n")
)


def pieces_of(words: list[str]) -> list[str]:
    stream = Stream()
    return [block for block in (*map(stream.feed, words), stream.flush()) if block]


@given(st.lists(WORDS, max_size=20))
def test_nothing_is_lost_and_it_does_not_matter_how_the_text_arrives(words: list[str]) -> None:
    text = "".join(words)
    assert "".join(pieces_of(words)) == text
    assert pieces_of(words) == pieces_of(list(text))


def test_a_block_ends_where_the_next_begins_and_no_list_or_fence_is_torn() -> None:
    text = "one\n\ntwo\n\n- a\n\n- b\n\n```\nx\n\ny\n```\n\nlast"
    assert pieces_of(list(text)) == ["one\n\n", "two\n\n- a\n\n- b\n\n", "```\nx\n\ny\n```\n\n", "last"]
