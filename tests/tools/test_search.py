"""Glob, Grep and LS through their public door, with the real ripgrep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from letta_code.core.messages import Text
from letta_code.core.tooling import ToolOutput
from letta_code.errors import ToolError
from letta_code.tools.base import Access, Call, Workspace
from letta_code.tools.globs import matcher
from letta_code.tools.search import LS, Glob, GlobArguments, Grep, GrepArguments, LSArguments

CALL = Call("call-1")


class Bench:
    """A project folder and the search tools."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.workspace = Workspace(project, (project,), project / ".overflow")

    def put(self, name: str, text: str | bytes = "") -> None:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    async def glob(self, pattern: str, **more: Any) -> str:
        arguments = GlobArguments.model_validate({"pattern": pattern, **more})
        return _text(await Glob(self.workspace).run(arguments, CALL))

    async def grep(self, pattern: str, more: dict[str, Any] | None = None) -> str:
        arguments = GrepArguments.model_validate({"pattern": pattern, **(more or {})})
        return _text(await Grep(self.workspace).run(arguments, CALL))

    async def ls(self, **more: Any) -> str:
        return _text(await LS(self.workspace).run(LSArguments.model_validate(more), CALL))


def _text(output: ToolOutput) -> str:
    (block,) = output.content
    assert isinstance(block, Text)
    block.text.encode("utf-8")
    return block.text


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path.resolve())


async def test_a21_ignored_and_hidden_places_that_are_named_are_searched(bench: Bench) -> None:
    bench.put(".gitignore", "dist/\n*.log\n.env\n")
    for name in ("dist/a/b.js", ".hidden/c.js", "x.log", ".env"):
        bench.put(name, "needle\n")
    assert await bench.glob("dist/**/*.js") == "dist/a/b.js"
    assert "dist/a/b.js" in await bench.glob("**/*.js", path="dist")
    assert ".env" in await bench.glob("**/.env")
    assert await bench.grep("needle", {"path": ".hidden"}) == ".hidden/c.js"
    assert await bench.grep("needle", {"path": "dist/a"}) == "dist/a/b.js"
    assert await bench.grep("needle", {"glob": "dist/**/*.js"}) == "dist/a/b.js"
    assert await bench.grep("needle", {"path": "x.log"}) == "x.log"


@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
async def test_a21_what_ignore_rules_hide_is_counted(bench: Bench, mode: str) -> None:
    bench.put(".gitignore", "dist/**\n")
    bench.put("dist/a.js", "needle\n")
    bench.put("dist/b.js", "needle\n")
    text = await bench.grep("needle", {"output_mode": mode})
    assert text.startswith("No matches found.")
    assert "hide 2 more matching files, such as dist/a.js" in text
    assert f"path='{bench.project / 'dist'}'" in text
    assert "dist/a.js" in await bench.grep("needle", {"path": str(bench.project / "dist")})
    bench.put("src.js", "needle\n")
    text = await bench.grep("needle", {"output_mode": mode, "glob": "*.js"})
    assert text.startswith("src.js")
    assert "hide 2 more" in text
    assert "hide 2 more" in await bench.glob("**/*.js")


async def test_a22_worktree_below_an_ignored_folder_gives_no_duplicates(bench: Bench) -> None:
    bench.put(".gitignore", ".worktrees/\n")
    bench.put("src/main.py", "needle\n")
    bench.put(".worktrees/w/src/main.py", "needle\n")
    bench.put(".worktrees/w/.git", "gitdir: elsewhere\n")
    bench.put(".git/config", "needle\n")
    for text in (await bench.glob("**/main.py"), await bench.grep("needle")):
        first, note = text.split("\n")
        assert first == "src/main.py"
        assert "hide 1 more matching file," in note
    assert await bench.grep("needle", {"path": ".git"}) == ".git/config"


async def test_a26_names_arrive_whole(bench: Bench) -> None:
    names = ["a b.txt", "x -> y.txt", "文档.txt", 'q"uote.txt']
    for name in names:
        bench.put(name, "needle\n")
    assert await bench.glob("*.txt") == "\n".join(sorted(names, key=os.fsencode))
    assert await bench.grep("needle") == "\n".join(sorted(names, key=os.fsencode))
    assert "文档.txt:1:needle" in await bench.grep("needle", {"output_mode": "content"})
    assert "x -> y.txt:1" in await bench.grep("needle", {"output_mode": "count"})


async def test_a26_names_and_contents_that_are_not_utf8_never_raise(bench: Bench) -> None:
    bench.put(os.fsdecode(b"n\xff\n.txt"), b"needle \xe9\n")
    assert await bench.glob("*") == "n\\xff\\n.txt"
    for mode in ("files_with_matches", "content", "count"):
        assert (await bench.grep("needle", {"output_mode": mode})).startswith("n\\xff\\n.txt")
    assert await bench.ls() == "n\\xff\\n.txt"


async def test_grep_content_with_context_and_options(bench: Bench) -> None:
    bench.put("f.py", "one\ntwo\nThree\nfour\nfive\nsix\nthree\n")
    bench.put("g.js", "three\n")
    content = {"output_mode": "content", "type": "py"}
    assert await bench.grep("three", content) == "f.py:7:three"
    assert await bench.grep("three", {**content, "-n": False}) == "f.py:three"
    assert await bench.grep("three", {**content, "-i": True, "-A": 1, "-B": 1}) == (
        "f.py-2-two\nf.py:3:Three\nf.py-4-four\n--\nf.py-6-six\nf.py:7:three"
    )
    assert await bench.grep("Three.*five", {**content, "multiline": True}) == (
        "f.py:3:Three\nf.py:4:four\nf.py:5:five"
    )
    assert await bench.grep("three", {"glob": "!*.js"}) == "f.py"
    assert await bench.grep("three", {"glob": "*.{js,ts}"}) == "g.js"
    assert await bench.grep("three", {"output_mode": "count", "-i": True}) == "f.py:2\ng.js:1"
    assert await bench.grep("(?<=t)wo", content) == "f.py:2:two"


async def test_grep_pages_and_cuts_long_lines(bench: Bench) -> None:
    bench.put("f", "".join(f"needle {n}\n" for n in range(600)))
    content = {"output_mode": "content"}
    text = await bench.grep("needle", content)
    assert text.count("\n") == 250
    assert text.endswith("[results 1 to 250 shown, there are more; for more: offset=250]")
    assert (await bench.grep("needle", {**content, "offset": 598})) == "f:599:needle 598\nf:600:needle 599"
    assert (await bench.grep("needle", {**content, "head_limit": 1})).startswith("f:1:needle 0\n[results")
    bench.put("f", "x" * 3_000_000 + "needle" + "y" * 1_000_000)
    text = await bench.grep("needle", content)
    assert len(text) < 1_000
    assert "xneedley" in text
    assert "of 4,000,006" in text


async def test_bad_arguments_are_explained(bench: Bench) -> None:
    bench.put("src/f", "a-b\n-x\n")
    for arguments, words in (
        ({"pattern": "a("}, "regex|unclosed"),
        ({"pattern": ""}, "empty"),
        ({"pattern": "a", "type": "nonsense"}, "type"),
        ({"pattern": "a", "path": "scr"}, "did you mean src"),
        ({"pattern": "a\0"}, "null byte|NUL"),
        ({"pattern": "a\ud800"}, "surrogates"),
        ({"pattern": "a", "-A": -1}, "negative"),
        ({"pattern": "a", "offset": 9}, "only 1"),
    ):
        with pytest.raises(ToolError, match=words):
            await bench.grep(str(arguments["pattern"]), arguments)
    assert await bench.grep("-x") == "src/f"
    assert await bench.grep("--files") == "No matches found."
    with pytest.raises(ToolError, match="glob"):
        await bench.glob("[z-a]x")


async def test_glob_finds_sorts_limits_and_stays_below_its_root(bench: Bench) -> None:
    for n in range(250):
        bench.put(f"d/{n:03}.ts")
    text = await bench.glob("d/*.ts")
    assert text.startswith("d/000.ts\nd/001.ts\n")
    assert "[results 1 to 200 shown" in text
    assert await bench.glob(f"{bench.project}/d/00[0-1].ts") == "d/000.ts\nd/001.ts"
    assert await bench.glob("nothing*") == "No files found."
    access = Glob(bench.workspace).accesses(GlobArguments(pattern="../../etc/*"))
    assert access == (Access("read", str(bench.project / "../../etc")),)


async def test_ripgrep_configuration_of_the_person_is_not_used(tmp_path: Path) -> None:
    config = tmp_path / "rc"
    config.write_text("--no-such-option\n")
    project = tmp_path / "p"
    project.mkdir()
    (project / "f").write_text("x\n")
    environment = {"RIPGREP_CONFIG_PATH": str(config), "PATH": "/nonexistent"}
    workspace = Workspace(project, (project,), tmp_path / "o", environment=environment)
    assert _text(await Glob(workspace).run(GlobArguments(pattern="*"), CALL)) == "f"


async def test_ls_puts_folders_first_and_marks_links(bench: Bench) -> None:
    bench.put("b/x")
    bench.put("a.txt")
    bench.put(".h")
    (bench.project / "link").symlink_to("nowhere")
    assert await bench.ls() == "b/\n.h\na.txt\nlink@"
    assert await bench.ls(path="b") == "x"
    assert await bench.ls(ignore=["*.txt", "b/"]) == ".h\nlink@"
    with pytest.raises(ToolError, match="use Read"):
        await bench.ls(path="a.txt")
    with pytest.raises(ToolError, match="does not exist"):
        await bench.ls(path="zzz")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a/b/c.py", True),
        ("src/*.py", "src/a/c.py", False),
        ("src/**/*.py", "src/c.py", True),
        ("**/a/**", "x/a/b/c", True),
        ("a/**", "ab/c", False),
        ("{a,b{c,d}}/x", "bd/x", True),
        ("a{b", "a{b", True),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("a[]]b", "a]b", True),
        (r"\*x", "*x", True),
        ("a?c", "a/c", False),
    ],
)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    assert matcher(pattern)(path) is expected
