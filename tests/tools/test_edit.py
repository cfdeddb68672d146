"""Edit and MultiEdit through their public door, on real files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.core.tooling import DiffDisplay
from letta_code.errors import ToolError
from letta_code.tools.base import Call, Workspace
from letta_code.tools.edit import Edit, EditArguments, MultiEdit, MultiEditArguments
from letta_code.tools.files import Read, ReadArguments
from letta_code.tools.matching import View, replace
from letta_code.tools.seen import SeenFiles

CALL = Call("call-1")


class Bench:
    """A project folder with the tools that share one memory of what was read."""

    def __init__(self, project: Path) -> None:
        self.project = project
        workspace = Workspace(project, (project,), project / ".overflow")
        self.seen = SeenFiles()
        self.read = Read(workspace, self.seen)
        self.edit = Edit(workspace, self.seen)
        self.multi = MultiEdit(workspace, self.seen)

    def put(self, name: str, raw: bytes) -> Path:
        path = self.project / name
        path.write_bytes(raw)
        return path

    async def change(self, name: str, old: str, new: str, everywhere: bool = False) -> str:
        arguments = EditArguments(file_path=name, old_string=old, new_string=new, replace_all=everywhere)
        return (await self.edit.run(arguments, CALL)).content[0].text  # type: ignore[union-attr]

    async def look(self, name: str) -> str:
        output = await self.read.run(ReadArguments.model_validate({"file_path": name}), CALL)
        return output.content[0].text  # type: ignore[union-attr]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path.resolve())


async def test_a01_lf_old_text_matches_crlf_file_and_inserted_lines_get_crlf(bench: Bench) -> None:
    path = bench.put("f", b"a\r\nb\r\nc\r\n")
    await bench.change("f", "a\nb", "a\nx\nb")
    assert path.read_bytes() == b"a\r\nx\r\nb\r\nc\r\n"


async def test_a02_single_line_edit_keeps_every_crlf(bench: Bench) -> None:
    path = bench.put("f", b"a\r\nb\r\nc\r\n")
    await bench.change("f", "b", "B")
    assert path.read_bytes() == b"a\r\nB\r\nc\r\n"


async def test_a02_mixed_endings_each_kept(bench: Bench) -> None:
    path = bench.put("f", b"a\r\nb\nc\r\nd\n")
    await bench.change("f", "a\nb\nc\nd", "a\nb2\nc\nnew\nd")
    assert path.read_bytes() == b"a\r\nb2\nc\r\nnew\nd\n"


async def test_a02_crlf_spelled_by_the_model_is_not_doubled(bench: Bench) -> None:
    path = bench.put("f", b"a\r\nb\r\n")
    await bench.change("f", "a\r\nb", "a\r\nx\r\nb")
    assert path.read_bytes() == b"a\r\nx\r\nb\r\n"


async def test_a04_lf_stays_lf_and_lone_cr_stays(bench: Bench) -> None:
    path = bench.put("f", b"a\nb\rb\nc\x0bc\x85\n".replace(b"\x85", "\u2028".encode()))
    await bench.change("f", "a", "A")
    assert path.read_bytes() == "A\nb\rb\nc\x0bc\u2028\n".encode()


async def test_a04_classic_mac_line_ends(bench: Bench) -> None:
    path = bench.put("f", b"a\rb\rc\r")
    await bench.change("f", "a\nb", "a\nx\nb")
    assert path.read_bytes() == b"a\rx\rb\rc\r"


async def test_a05_bom_is_kept(bench: Bench) -> None:
    path = bench.put("f", b"\xef\xbb\xbfhello\n" + "中文\n".encode())
    await bench.change("f", "hello", "hello2")
    assert path.read_bytes() == b"\xef\xbb\xbfhello2\n" + "中文\n".encode()


async def test_a07_first_line_matches_despite_bom(bench: Bench) -> None:
    path = bench.put("f.md", b"\xef\xbb\xbf# Title\n")
    assert await bench.look("f.md") == "1\t# Title"
    await bench.change("f.md", "# Title", "# New")
    assert path.read_bytes() == b"\xef\xbb\xbf# New\n"


@pytest.mark.parametrize(
    "rest",
    [b"// caf\xe9\n", b"\x81\x8d\xff\n", "中文 ".encode() + b"\xff\n", "漢字テスト".encode("cp932") + b"\n"],
)
async def test_a08_bytes_that_are_not_utf8_stay(bench: Bench, rest: bytes) -> None:
    path = bench.put("f", b"const x = 1;\n" + rest)
    await bench.change("f", "const x = 1", "const x = 2")
    assert path.read_bytes() == b"const x = 2;\n" + rest


async def test_a08_utf16_edited_in_place_and_impossible_characters_refused(bench: Bench) -> None:
    wide = bench.put("w", "\ufeffone\r\ntwo\r\n".encode("utf-16-le"))
    await bench.change("w", "one\ntwo", "one\n2\ntwo")
    assert wide.read_bytes() == "\ufeffone\r\n2\r\ntwo\r\n".encode("utf-16-le")
    raw = "x = 1\n# café déjà vu, très légère à côté\n".encode("latin-1")
    legacy = bench.put("l", raw)
    with pytest.raises(ToolError, match="cannot hold"):
        await bench.change("l", "x = 1", "x = '中'")
    assert legacy.read_bytes() == raw
    await bench.change("l", "café", "thé")
    assert legacy.read_bytes() == raw.replace(b"caf\xe9", b"th\xe9")


async def test_a12_exact_match_is_unique_beside_a_curly_twin(bench: Bench) -> None:
    path = bench.put("f", 'g = "hi"\ng = “hi”\n'.encode())
    await bench.change("f", 'g = "hi"', 'g = "ho"')
    assert path.read_text("utf-8") == 'g = "ho"\ng = “hi”\n'


async def test_a13_literal_escape_is_not_the_character(bench: Bench) -> None:
    path = bench.put("f", rb's = "a\u00A0b"' + b"\n")
    await bench.change("f", r"a\u00A0b", r"a\u00A0c")
    assert path.read_bytes() == rb's = "a\u00A0c"' + b"\n"
    with pytest.raises(ToolError, match="not in the file"):
        await bench.change("f", "a\u00a0c", "zzz")


async def test_a15_curly_quotes_match_leniently_are_kept_and_reported(bench: Bench) -> None:
    path = bench.put("f", "前“改这里”后\n".encode())
    report = await bench.change("f", '"改这里"', '"改那里"')
    assert path.read_text("utf-8") == "前“改那里”后\n"
    assert "Typographic" in report


async def test_a15_lenient_match_must_be_unique(bench: Bench) -> None:
    raw = "“a”\n„a‟\n".encode()
    path = bench.put("f", raw)
    with pytest.raises(ToolError, match="lines 1, 2"):
        await bench.change("f", '"a"', "b", everywhere=True)
    assert path.read_bytes() == raw


@pytest.mark.parametrize("raw", [b"x", b"x\n", b"x\n\n"])
async def test_a17_final_newline_stays_as_it_was(bench: Bench, raw: bytes) -> None:
    path = bench.put("f", raw)
    await bench.change("f", "x", "y")
    assert path.read_bytes() == raw.replace(b"x", b"y")


async def test_a18_changed_file_is_edited_when_unique_and_the_model_is_told(bench: Bench) -> None:
    path = bench.put("f", b"one\ntwo\n")
    await bench.look("f")
    path.write_bytes(b"one\nTWO\n")
    assert "changed on disk" in await bench.change("f", "one", "1")
    assert path.read_bytes() == b"1\nTWO\n"


async def test_a18_changed_file_is_refused_when_not_unique(bench: Bench) -> None:
    path = bench.put("f", b"one\ntwo\n")
    await bench.look("f")
    path.write_bytes(b"one\none\n")
    for everywhere in (False, True):
        with pytest.raises(ToolError, match="changed on disk"):
            await bench.change("f", "one", "1", everywhere)
    assert path.read_bytes() == b"one\none\n"


async def test_ambiguous_names_the_lines_and_replace_all_takes_them(bench: Bench) -> None:
    path = bench.put("f", b"a\nb\na\n")
    with pytest.raises(ToolError, match="2 times, at lines 1, 3"):
        await bench.change("f", "a", "c")
    assert "2 replacements" in await bench.change("f", "a", "c", everywhere=True)
    assert path.read_bytes() == b"c\nb\nc\n"


async def test_not_found_shows_what_comes_close(bench: Bench) -> None:
    bench.put("f", b"def f():\n\treturn value_of(thing)\n")
    with pytest.raises(ToolError, match="but for white space:\n2\t\treturn value_of"):
        await bench.change("f", "    return value_of(thing)", "x")
    with pytest.raises(ToolError, match="Closest lines:\n2\t"):
        await bench.change("f", "return value_of(think)", "x")
    with pytest.raises(ToolError, match="line numbers"):
        await bench.change("f", "1\tdef f():", "x")


async def test_no_change_missing_file_and_folder_are_errors(bench: Bench) -> None:
    bench.put("name.py", b"a\n")
    with pytest.raises(ToolError, match="same"):
        await bench.change("name.py", "a", "a")
    with pytest.raises(ToolError, match=r"did you mean name\.py"):
        await bench.change("nane.py", "a", "b")
    with pytest.raises(ToolError, match="folder"):
        await bench.change(".", "a", "b")
    with pytest.raises(ToolError, match="file is not"):
        await bench.change("name.py", "", "b")


async def test_empty_old_string_creates(bench: Bench) -> None:
    await bench.change("new/f", "", "x\n")
    assert (bench.project / "new/f").read_bytes() == b"x\n"


async def test_multi_edit_is_all_or_nothing(bench: Bench) -> None:
    path = bench.put("f", b"a\nb\n")
    edits = [{"old_string": "a", "new_string": "c"}, {"old_string": "c\nb", "new_string": "d"}]
    await bench.multi.run(MultiEditArguments.model_validate({"file_path": "f", "edits": edits}), CALL)
    assert path.read_bytes() == b"d\n"
    edits = [{"old_string": "d", "new_string": "e"}, {"old_string": "nothing", "new_string": "x"}]
    with pytest.raises(ToolError, match="edit 2 of 2"):
        await bench.multi.run(MultiEditArguments.model_validate({"file_path": "f", "edits": edits}), CALL)
    assert path.read_bytes() == b"d\n"


async def test_preview_shows_the_change_and_does_nothing(bench: Bench) -> None:
    path = bench.put("f", b"a\n")
    arguments = EditArguments(file_path="f", old_string="a", new_string="b")
    assert bench.edit.preview(arguments) == (DiffDisplay("f", "a\n", "b\n"),)
    assert path.read_bytes() == b"a\n"
    assert bench.edit.preview(EditArguments(file_path="f", old_string="zz", new_string="b")) == ()


async def test_mode_and_symlink_survive_and_a_hard_link_when_the_person_agreed(bench: Bench) -> None:
    path = bench.put("f", b"a\n")
    path.chmod(0o751)
    (bench.project / "link").symlink_to("f")
    await bench.change("link", "a", "b")
    assert (bench.project / "link").is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    os.link(path, bench.project / "twin")
    arguments = EditArguments(file_path="f", old_string="b", new_string="c")
    await bench.edit.run(arguments, Call("call-1", consented=True))
    assert (bench.project / "twin").read_bytes() == b"c\n"
    assert "keep the old content" in await bench.change("f", "c", "d")
    assert (path.read_bytes(), (bench.project / "twin").read_bytes()) == (b"d\n", b"c\n")
    assert sorted(os.listdir(bench.project)) == ["f", "link", "twin"]


_PIECES = st.lists(
    st.sampled_from(["a", "b", "中", "\u00a0", "“", '"', "\n", "\r\n", "\t", " ", "é", "\ufeff", "\x0c"]),
    max_size=12,
).map("".join)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(head=_PIECES, tail=_PIECES, new=_PIECES, broken=st.sampled_from([b"", b"\xff\xe9"]), bom=st.booleans())
async def test_a08_every_byte_outside_the_region_is_identical(
    bench: Bench, head: str, tail: str, new: str, broken: bytes, bom: bool
) -> None:
    before = (b"\xef\xbb\xbf" if bom else "中文".encode()) + head.encode()
    after = tail.encode() + broken
    path = bench.put("p", before + b"<old>" + after)
    await bench.change("p", "<old>", new + "!")
    raw = path.read_bytes()
    assert raw.startswith(before)
    assert raw.endswith(b"!" + after)
    middle = raw[len(before) : len(raw) - len(after)].decode()
    assert middle.replace("\r\n", "\n") == (new + "!").replace("\r\n", "\n")


@settings(max_examples=300, deadline=None)
@given(
    lines=st.lists(st.sampled_from(["a", "b", "", "c"]), min_size=1, max_size=6),
    new=st.text("abc\n", max_size=9),
    data=st.data(),
)
def test_a02_the_model_sees_exactly_what_it_wrote_and_equal_lines_keep_their_breaks(
    lines: list[str], new: str, data: st.DataObject
) -> None:
    text = "".join(line + data.draw(st.sampled_from(["\n", "\r\n"])) for line in lines)
    old = View(text).text
    if new == old:
        return
    replaced = replace(text, old, new, everywhere=False).text
    assert View(replaced).text == new
    assert "\r\r" not in replaced


def test_long_regions_keep_head_and_tail() -> None:
    build: Callable[[str], str] = lambda middle: "\n".join(["x"] * 3_000 + [middle] + ["y"] * 3_000)  # noqa: E731
    text = build("old").replace("\n", "\r\n")
    assert replace(text, build("old"), build("new"), everywhere=False).text == text.replace("old", "new")
