"""Bounded output: B08, B10, and that nothing of a long text is lost."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.tools.base import Workspace
from letta_code.tools.output import Spool, bound, clean


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, (tmp_path,), tmp_path / "overflow")


def full_text_path(result: str) -> Path:
    match = re.search(r"Grep: (.+)\]", result)
    assert match, result
    return Path(match[1])


def test_a_text_within_the_limit_is_unchanged_and_makes_no_file(workspace: Workspace) -> None:
    text = "中" * 30_000
    assert bound(text, workspace, "Grep") == text
    assert not workspace.overflow.exists()


def test_b10_head_and_tail_in_whole_lines_and_the_full_text_in_a_private_file(workspace: Workspace) -> None:
    text = "".join(f"line {number} é\n" for number in range(20_000))
    result = bound(text, workspace, "Bash", 10_000)
    assert len(result) <= 10_000
    before, note, after = re.split(r"(\[.*\])\n", result)
    assert text.startswith(before)
    assert before.endswith("é\n")
    assert text.endswith(after)
    assert after.startswith("line ")
    assert f"{len(text):,} characters, 20,000 lines in all" in note
    path = full_text_path(result)
    assert path.read_text("utf-8") == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_b10_one_giant_line_is_cut_too(workspace: Workspace) -> None:
    result = bound("x" * 4_000_000 + "END", workspace, "Read", 5_000)
    assert 4_000 < len(result) <= 5_000
    assert result.startswith("xxx")
    assert result.endswith("xEND")
    assert full_text_path(result).stat().st_size == 4_000_003


def test_b10_a_million_empty_lines(workspace: Workspace) -> None:
    result = bound("\n" * 1_000_000, workspace, "Bash")
    assert len(result) <= 30_000
    assert "1,000,000 lines" in result


def test_the_oldest_files_go_when_there_are_many(workspace: Workspace) -> None:
    for number in range(105):
        bound(f"{number} " + "z" * 2_000, workspace, "x", 1_000)
    kept = list(workspace.overflow.iterdir())
    assert len(kept) == 100
    assert any(path.read_text().startswith("104 ") for path in kept)


def test_no_place_for_the_file_is_said_and_is_no_error(workspace: Workspace) -> None:
    workspace.overflow.write_text("a file in the way")
    result = bound("y" * 50_000, workspace, "x")
    assert "could not be kept" in result
    assert result.startswith("y")


def test_b08_bytes_in_any_pieces_never_raise(workspace: Workspace) -> None:
    spool = Spool(workspace, "x")
    shown = [spool.feed(bytes([byte])) for byte in "aĳ\n".encode() + b"\xff\xfe" + "中".encode()[:2]]
    shown.append(spool.feed(b"", last=True))
    assert "".join(shown) == spool.finish() == "aĳ\n\ufffd\ufffd\ufffd"


ESCAPED = "\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\ \x1b(Bplain\x07\x08 a\0b\r\n"


def test_escape_sequences_are_removed_however_they_are_split(workspace: Workspace) -> None:
    assert clean(ESCAPED) == "red link plain a\ufffdb\r\n"
    for size in range(1, 12):
        spool = Spool(workspace, "x")
        data = ESCAPED.encode()
        for start in range(0, len(data), size):
            spool.feed(data[start : start + size])
        spool.feed(b"", last=True)
        assert spool.finish() == clean(ESCAPED)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=400), max_size=12), st.integers(1_000, 1_500))
def test_pieces_give_the_same_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("overflow")
    workspace = Workspace(folder, (folder,), folder)
    spool = Spool(workspace, "x", limit)
    for piece in pieces:
        spool.add(piece)
    spool.close()
    result, text = spool.finish(), "".join(pieces)
    assert len(result) <= limit
    if len(text) <= limit:
        assert result == text
    else:
        assert full_text_path(result).read_bytes() == text.encode()
        head, _, rest = result.partition("[" + f"{len(text):,} characters")
        assert text.startswith(head.removesuffix("\n"))
        assert text.endswith(rest.partition("]\n")[2])
