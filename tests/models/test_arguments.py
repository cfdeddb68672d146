"""C05 on its own: whatever a model writes as arguments is decoded or refused, and can be sent again."""

from __future__ import annotations

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from letta_code.models.arguments import encode_text, plain_id, tool_call


@given(st.text())
def test_c05_any_text_is_an_object_or_a_bounded_refusal(text: str) -> None:
    made = tool_call("id", "LS", text)
    assert (made.arguments is None) == bool(made.problem)
    assert isinstance(json.loads(encode_text(made)), dict)


def test_c05_nesting_is_bounded() -> None:
    for depth in (101, 900, 100_000):
        made = tool_call("id", "LS", '{"a":' * depth + "1" + "}" * depth)
        assert "too deeply" in made.problem
        assert len(made.raw) <= 2_000
    assert tool_call("id", "LS", '{"a":' * 99 + "1" + "}" * 99).problem == ""


def test_no_text_is_a_call_without_arguments() -> None:
    assert tool_call("id", "LS", " ").arguments == {}


@given(st.text(), st.text())
@example("-", "")
def test_plain_ids_are_accepted_everywhere_and_stay_distinct(first: str, second: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", plain_id(first))
    assert (plain_id(first) == plain_id(second)) == (first == second)
