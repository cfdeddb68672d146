"""Read and Write through their public door, on real files."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from letta_code.core.messages import Image
from letta_code.core.tooling import DiffDisplay
from letta_code.errors import ToolError
from letta_code.tools.base import Access, Call, Workspace
from letta_code.tools.files import Read, ReadArguments, Write, WriteArguments
from letta_code.tools.seen import SeenFiles

CALL = Call("call-1")


class Bench:
    """A project folder with Read and Write."""

    def __init__(self, project: Path) -> None:
        self.project = project
        workspace = Workspace(project, (project,), project / ".overflow")
        seen = SeenFiles()
        self.reader, self.writer = Read(workspace, seen), Write(workspace, seen)

    async def read(self, name: str, **more: Any) -> str:
        output = await self.reader.run(ReadArguments.model_validate({"file_path": name, **more}), CALL)
        return output.content[0].text  # type: ignore[union-attr]

    async def write(self, name: str, content: str) -> str:
        output = await self.writer.run(WriteArguments(file_path=name, content=content), CALL)
        return output.content[0].text  # type: ignore[union-attr]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path.resolve())


async def test_read_numbers_lines_and_pages(bench: Bench) -> None:
    (bench.project / "f").write_text("".join(f"line {n}\n" for n in range(1, 3001)))
    text = await bench.read("f")
    assert text.startswith("1\tline 1\n2\tline 2\n")
    assert text.endswith("[lines 1 to 2000 of 3,000 shown; for more: offset=2001]")
    assert await bench.read("f", offset=2999) == "2999\tline 2999\n3000\tline 3000"
    assert (await bench.read("f", offset=5, limit=1)).startswith("5\tline 5\n[lines 5 to 5 of 3,000")
    with pytest.raises(ToolError, match="has 3000 lines"):
        await bench.read("f", offset=3001)
    with pytest.raises(ToolError, match="limit"):
        await bench.read("f", limit=0)


async def test_read_is_bounded_and_says_how_to_go_on(bench: Bench) -> None:
    (bench.project / "f").write_text("".join("x" * 1_500 + "\n" for _ in range(100)))
    seen, offset = 0, 1
    while offset:
        text = await bench.read("f", offset=offset)
        assert len(text) <= 30_000
        seen += text.count("x" * 1_500)
        offset = int(text.rsplit("offset=", 1)[1].rstrip("]")) if "offset=" in text else 0
    assert seen == 100


@pytest.mark.parametrize("size", [40_000, 4_000_000])
async def test_a19_one_long_line_is_read_slice_by_slice(bench: Bench, size: int) -> None:
    line = "".join(chr(0x4E00 + n % 5_000) for n in range(size))
    (bench.project / "f.json").write_text(line, "utf-8")
    text = await bench.read("f.json")
    assert line[:2_000] in text
    assert f"of {size:,} shown; for more: offset=1, char_offset=2000" in text
    text = await bench.read("f.json", offset=1, char_offset=2_000)
    assert line[2_000:22_000] in text
    assert "char_offset=22000" in text
    assert len(text) < 30_000
    assert line[-10:] in await bench.read("f.json", char_offset=size - 10)
    with pytest.raises(ToolError, match=f"{size:,} characters"):
        await bench.read("f.json", char_offset=size)


async def test_a07_bom_is_hidden_and_a27_ts_is_text(bench: Bench) -> None:
    for name in ("foo.ts", "foo.mts"):
        (bench.project / name).write_bytes(b"\xef\xbb\xbfexport {}\r\n")
        assert await bench.read(name) == "1\texport {}"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("café au lait, déjà vu\n", "latin-1"),
        ("// caf\xe9\n", "cp1252"),
        ("这是一个用国标编码保存的文件，里面有许多汉字。\n第二行也是。\n", "gb18030"),
        ("これは日本語のテキストファイルです。漢字とひらがな。\n", "cp932"),
        ("Привет, это обычный русский текст в старой кодировке.\n", "cp1251"),
    ],
)
async def test_a10_legacy_encodings_are_readable_with_a_note(bench: Bench, text: str, encoding: str) -> None:
    (bench.project / "f").write_bytes(text.encode(encoding))
    note, first = (await bench.read("f")).split("\n")[:2]
    assert "encoding guessed" in note
    assert first == "1\t" + text.split("\n")[0]


async def test_a10_utf16_with_and_without_bom(bench: Bench) -> None:
    (bench.project / "a").write_bytes("\ufeffhi 中\r\nyou\r\n".encode("utf-16-be"))
    (bench.project / "b").write_bytes("hello\nyou\n".encode("utf-16-le"))
    assert (await bench.read("a")).endswith("1\thi 中\n2\tyou")
    assert (await bench.read("b")).endswith("1\thello\n2\tyou")


async def test_picture_becomes_an_image(bench: Bench) -> None:
    raw = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    (bench.project / "p.png").write_bytes(raw)
    output = await bench.reader.run(ReadArguments.model_validate({"file_path": "p.png"}), CALL)
    assert output.content[1] == Image("image/png", base64.b64encode(raw).decode())


async def test_what_cannot_be_read_is_refused_helpfully(bench: Bench) -> None:
    (bench.project / "config.toml").write_text("")
    (bench.project / "bin").write_bytes(b"\x7fELF\0\0\1")
    os.mkfifo(bench.project / "fifo")
    (bench.project / "loop").symlink_to("loop")
    for name, words in (
        (".", "LS"),
        ("bin", "not text"),
        ("fifo", "not a regular file"),
        ("conifg.toml", "did you mean config.toml"),
        ("no/such/dir/f", "deepest folder"),
        ("config.toml/x", "file, not a folder"),
        ("loop", "loop|symbolic"),
        ("", "empty"),
        ("a\0b", "NUL"),
        ("a\ud800", "characters"),
        ("/dev/null", "not a regular file"),
        ("x" * 300, "name too long"),
    ):
        with pytest.raises(ToolError, match=f"(?i){words}"):
            await bench.read(name)
    assert await bench.read("config.toml") == "(the file is empty)"


async def test_a17_new_file_holds_exactly_the_content(bench: Bench) -> None:
    for content in ("x", "x\n", "", "a\r\nb\n", "中\u2028"):
        path = bench.project / "deep" / "er" / f"f{len(content)}{content[-1:]!r}"
        await bench.write(str(path), content)
        assert path.read_bytes() == content.encode()


async def test_write_refuses_unread_and_changed_files(bench: Bench) -> None:
    path = bench.project / "f"
    path.write_text("mine\n")
    with pytest.raises(ToolError, match="Read it first"):
        await bench.write("f", "new\n")
    await bench.read("f")
    path.write_text("mine 2\n")
    with pytest.raises(ToolError, match="Read it again"):
        await bench.write("f", "new\n")
    assert path.read_text() == "mine 2\n"
    await bench.read("f")
    await bench.write("f", "new\n")
    await bench.write("f", "newer\n")
    assert path.read_text() == "newer\n"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\n", "x\ny\n", b"x\ny\n"),
        (b"\xef\xbb\xbfa\n", "x\n", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n"),
        ("\ufeffa\r\n".encode("utf-16-le"), "x\n", "\ufeffx\r\n".encode("utf-16-le")),
    ],
)
async def test_a02_a05_write_keeps_line_ends_bom_and_encoding(
    bench: Bench, before: bytes, content: str, after: bytes
) -> None:
    (bench.project / "f").write_bytes(before)
    await bench.read("f")
    await bench.write("f", content)
    assert (bench.project / "f").read_bytes() == after


async def test_a24_write_goes_to_the_resolved_target_of_a_dangling_link(bench: Bench) -> None:
    (bench.project / "link").symlink_to("sub/target")
    assert "sub/target" in await bench.write("link", "x")
    assert (bench.project / "link").is_symlink()
    assert (bench.project / "sub/target").read_text() == "x"
    access = bench.writer.accesses(WriteArguments(file_path="link", content=""))
    assert access == (Access("write", str(bench.project / "link")),)


async def test_write_refuses_fifo_folder_and_file_as_parent(bench: Bench) -> None:
    os.mkfifo(bench.project / "fifo")
    (bench.project / "file").write_text("x")
    for name in ("fifo", ".", "file/below", "/dev/full"):
        with pytest.raises(ToolError):
            await bench.write(name, "x")
    assert sorted(os.listdir(bench.project)) == ["fifo", "file"]


async def test_write_preview_changes_nothing_and_display_is_bounded(bench: Bench) -> None:
    big = "".join(f"{n}\n" for n in range(100_000))
    (bench.project / "f").write_text(big)
    changed = big.replace("\n5000\n", "\nfive\n")
    (display,) = bench.writer.preview(WriteArguments(file_path="f", content=changed))
    assert isinstance(display, DiffDisplay)
    assert display.after is not None
    assert "five" in display.after
    assert len(display.after) < 100
    assert (bench.project / "f").read_text() == big


async def test_names_that_nobody_has_are_missing_files(bench: Bench) -> None:
    for name in ("~no-such-user/f", "a\ud800b"):
        arguments = ReadArguments.model_validate({"file_path": name})
        assert bench.reader.title(arguments).startswith("Read ")
        assert bench.reader.accesses(arguments)[0].target == f"{bench.project}/{name}"
    with pytest.raises(ToolError, match="does not exist"):
        await bench.read("~no-such-user/f")
