from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from letta_code.errors import MemoryEditError
from letta_code.memory.blocks import new_block, parse_block
from letta_code.memory.rules import check_content, checked_path, problems_of

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
words = text.filter(lambda value: value.strip() != "")


@given(words, text)
def test_a_new_file_reads_back_as_it_was_given(description: str, body: str) -> None:
    block = parse_block("a.md", new_block("a.md", description, body))
    assert (block.description, block.body) == (description.strip(), body)


@given(words, words, text, st.sampled_from(["", "\ufeff"]), st.sampled_from(["\n", "\r\n"]))
def test_e19_a_new_description_leaves_one_header_and_every_other_byte(
    old: str, new: str, body: str, bom: str, newline: str
) -> None:
    header = new_block("a.md", old, "").decode().split("\n")[1]
    rest = f"# a comment{newline}custom: [1, 2]{newline}limit: 9999{newline}---{newline}{body}"
    before = f"{bom}---{newline}{header}{newline}{rest}".encode()
    after = parse_block("a.md", before).with_description(new)
    assert after.endswith(rest.encode())
    assert after.startswith(f"{bom}---{newline}description: ".encode())
    assert after[: -len(rest.encode())].count(b"description:") == 1 + new.encode().count(b"description:")
    assert parse_block("a.md", after).description == new.strip()


@pytest.mark.parametrize("mark", [">", "|", ">-", "|+"])
def test_e17_folded_values_are_read_and_can_be_replaced(mark: str) -> None:
    data = f"---\ndescription: {mark}\n  one\n  two\nread_only: false\n---\nbody\n".encode()
    block = parse_block("a.md", data)
    assert block.description.split() == ["one", "two"]
    assert (
        block.with_description("short").decode() == "---\ndescription: short\nread_only: false\n---\nbody\n"
    )


@pytest.mark.parametrize("header", ["description:\td\n", "description: &d d\nother: *d\n"])
def test_a_description_that_cannot_be_changed_in_one_place_is_refused(header: str) -> None:
    block = parse_block("a.md", f"---\n{header}---\nbody\n".encode())
    assert block.description == "d"
    with pytest.raises(MemoryEditError):
        block.with_description("new")


def test_a_file_without_front_matter_is_all_body_and_can_get_a_description() -> None:
    block = parse_block("a.md", b"just text\n")
    assert (block.body, block.description) == ("just text\n", "")
    assert block.with_description("x: y").decode() == '---\ndescription: "x: y"\n---\njust text\n'


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'---\ndescription: "abc "def" ghi"\n---\n', "not valid YAML"),  # E20
        (b"---\ndescription: x\n", "not closed"),
        (b"---\n- a\n---\n", "key: value"),
        (b"---\nlimit: many\n---\n", "`limit`"),
        (b"---\nlimit: -1\n---\n", "`limit`"),
        (b"---\nread_only: 'yes'\n---\n", "`read_only`"),
        (b"---\ndescription: [a]\n---\n", "`description`"),
        ("hé".encode("utf-16"), "UTF-16"),
        (b"caf\xe9", "not UTF-8"),
        (b"a\0b", "NUL"),
        (b"---\nwhen: 2026-13-45\n---\n", "not valid YAML"),
        (b"---\na: &x [*x]\nb: !!python/object:os.system {}\n---\n", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with pytest.raises(MemoryEditError, match=says):
        parse_block("a.md", data)


@given(st.text("abyesnot ru0:#-'\"[]{}.,~", max_size=12))
def test_the_quick_header_reader_agrees_with_yaml(value: str) -> None:
    header = f"description: {value}\n"
    try:
        expected = yaml.load(header, Loader=yaml.BaseLoader)
        found = parse_block("a.md", f"---\n{header}---\n".encode()).description
    except (yaml.YAMLError, MemoryEditError):
        return
    if isinstance(expected["description"], str) and found:
        assert found == expected["description"].strip()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a.md",
        "../a.md",
        "a/../b.md",
        "a//b.md",
        "./a.md",
        "a\0.md",
        ".git/x.md",
        "x/.GIT/y.md",
        "~/a.md",
        "\ud800.md",
        ".g\u200cit/a.md",
        "git~1/a.md",
        "x" * 300,
    ],
)
def test_bad_paths_are_refused(path: str) -> None:
    with pytest.raises(MemoryEditError):
        checked_path(path)


@pytest.mark.parametrize(
    "path", ["system/偏好.md", "a b.md", "__proto__/x.md", "q\"'.md", "two\nlines.md", ".github/x.md"]
)
def test_odd_names_are_allowed(path: str) -> None:
    assert checked_path(path) == path


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("System/human.md", "case"),
        ("system/Human.md", "case"),
        ("system/human.md/x.md", "is a file"),
        ("system", "is a folder"),
    ],
)
def test_names_that_a_file_system_could_not_hold_are_refused(path: str, says: str) -> None:
    assert says in problems_of({"system/human.md": b"x"}, {path: b"y"})[0]


def test_unicode_forms_of_one_name_collide() -> None:
    assert problems_of({"caf\u00e9.md": b"x"}, {"cafe\u0301.md": b"y"})
    assert not problems_of({"caf\u00e9.md": b"x"}, {"cafe\u0301.md": b"y", "caf\u00e9.md": None})


def test_e03_conflict_markers_and_limits_are_refused() -> None:
    with pytest.raises(MemoryEditError, match="conflict markers"):
        check_content("a.md", b"<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x\n")
    with pytest.raises(MemoryEditError, match="4 characters and the text would have 5"):
        check_content("a.md", "---\nlimit: 4\n---\n四五六七八".encode())
    assert check_content("a.md", "---\nlimit: 5\n---\n四五六七八".encode()) is not None
