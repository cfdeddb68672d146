"""History on a terminal (a real pty): pager, colour, and `letta memory edit` in the person's editor."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pexpect
import pytest

from tests.cli.harness import Letta


@pytest.fixture
def memory(letta: Letta, tmp_path: Path) -> Path:
    letta.environment["TMPDIR"] = str(tmp_path)  # where refused texts are kept
    assert letta("agents", "create", "--name", "letta", "--block", "human=Likes tea.").code == 0
    return Path(letta("memory", "path").out.strip())


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


class Tool:
    """Makes programs to be used as editor or pager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, source: str) -> str:
        file = self.folder / name
        file.write_text(f"#!{sys.executable}\nimport sys, pathlib\n{source}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)


def on_terminal(letta: Letta, *words: str, rows: int = 24, **environment: str) -> pexpect.spawn[bytes]:
    command = letta.command(*words)
    return pexpect.spawn(
        command[0],
        command[1:],
        cwd=str(letta.project),
        env=letta.variables({"TERM": "xterm", **environment}),
        dimensions=(rows, 80),
        timeout=30,
    )


def output(process: pexpect.spawn[bytes]) -> str:
    process.expect(pexpect.EOF)
    process.close()
    text: bytes = process.before
    return text.decode()


def test_long_output_goes_through_the_pager_and_short_does_not(
    letta: Letta, memory: Path, tool: Tool
) -> None:
    pager = tool("my pager", "print('PAGED', sys.argv[1:], len(sys.stdin.read().splitlines()))")
    environment = {"LETTA_PAGER": f"'{pager}' --plain", "PAGER": "false"}
    assert "PAGED ['--plain'] " in output(on_terminal(letta, "memory", "log", rows=4, **environment))
    assert "PAGED" not in output(on_terminal(letta, "memory", "log", rows=50, **environment))
    assert "PAGED" not in output(on_terminal(letta, "memory", "log", "--no-pager", rows=4, **environment))
    assert "PAGED" in output(on_terminal(letta, "memory", "show", "system/human", rows=3, PAGER=f"'{pager}'"))
    assert "PAGED" not in letta("memory", "log", env={"LETTA_PAGER": pager}).out
    gone = output(on_terminal(letta, "memory", "log", rows=4, LETTA_PAGER="no-such-program"))
    assert "Start memory" in gone


def test_a_pager_that_is_left_early_is_no_failure(letta: Letta, memory: Path, tool: Tool) -> None:
    (memory / "big.md").write_text("---\ndescription: big\n---\n" + "line\n" * 50_000)
    assert letta("memory", "commit", "-m", "Big").code == 0
    pager = tool("quitter", "print(sys.stdin.readline())")
    process = on_terminal(letta, "memory", "show", "big", LETTA_PAGER=f"'{pager}'")
    assert "Traceback" not in output(process)
    assert process.exitstatus == 0


def test_colour_is_for_terminals_that_want_it(letta: Letta, memory: Path) -> None:
    assert "\x1b[33m" in output(on_terminal(letta, "memory", "log", rows=50))
    assert "\x1b[32m+Likes tea.\x1b[0m" in output(on_terminal(letta, "memory", "show", "HEAD", "--no-pager"))
    assert "\x1b[" not in output(on_terminal(letta, "memory", "log", rows=50, NO_COLOR="1"))
    assert "\x1b[" not in output(on_terminal(letta, "memory", "log", rows=50, TERM="dumb"))
    assert "\x1b" not in letta("memory", "log", env={"TERM": "xterm"}).out


EDIT = """
file = pathlib.Path(sys.argv[-1])
text = file.read_text(encoding="utf-8")
assert sys.argv[1:-1] == ["-w"], sys.argv
file.write_text(text.replace("tea", "rooibos"), encoding="utf-8")
"""


def test_edit_commits_what_the_editor_made_with_a_reason(letta: Letta, memory: Path, tool: Tool) -> None:
    editor = f"'{tool('my editor', EDIT)}' -w"
    done = letta(
        "memory", "edit", "system/human", "-m", "A new taste", env={"VISUAL": editor, "EDITOR": "false"}
    )
    assert done.code == 0, done.err
    head = letta("memory", "log", "--json").json[0]
    assert (head["reason"], head["paths"], head["source"]) == (
        "A new taste",
        ["system/human.md"],
        "user-stated",
    )
    assert "Likes rooibos." in (memory / "system" / "human.md").read_text()
    again = letta("memory", "edit", "system/human", "-m", "x", env={"EDITOR": editor})
    assert (again.code, again.err) == (0, "nothing was changed\n")
    unasked = letta("memory", "edit", "system/human", env={"EDITOR": editor})
    assert unasked.code == 2
    assert "-m WHY" in unasked.err


def test_edit_makes_a_new_file_and_asks_why(letta: Letta, memory: Path, tool: Tool) -> None:
    source = (
        "f = pathlib.Path(sys.argv[1]); t = f.read_text()\n"
        "f.write_text(t.replace('description: ', 'description: New.') + 'hi\\n')"
    )
    process = on_terminal(letta, "memory", "edit", "notes/new", EDITOR=f"'{tool('new', source)}'")
    process.expect("why › ".encode())
    process.sendline("Because")
    output(process)
    assert process.exitstatus == 0
    assert letta("memory", "show", "notes/new").out == "---\ndescription: New.\n---\nhi\n"
    assert letta("memory", "log", "--json").json[0]["reason"] == "Because"


def test_a_refused_edit_can_be_mended(letta: Letta, memory: Path, tool: Tool) -> None:
    """The editor writes something too long first, and shortens it when it is opened again."""
    source = (
        "f = pathlib.Path(sys.argv[1]); t = f.read_text()\n"
        "f.write_text(t.replace('tea.', 'x' * 99) if 'tea.' in t else t.replace('x' * 99, 'milk.'))"
    )
    human = memory / "system" / "human.md"
    human.write_text(human.read_text().replace("---\nLikes", "limit: 50\n---\nLikes"))
    assert letta("memory", "commit", "-m", "A limit").code == 0
    editor = f"'{tool('mender', source)}'"
    process = on_terminal(letta, "memory", "edit", "system/human", "-m", "Milk", EDITOR=editor)
    process.expect("limit is 50")
    process.expect("edit again")
    process.sendline("")
    output(process)
    assert process.exitstatus == 0
    assert letta("memory", "show", "system/human").out.endswith("Likes milk.\n")


def test_a_refused_edit_keeps_the_text_and_says_where(letta: Letta, memory: Path, tool: Tool) -> None:
    head = letta("memory", "log", "--json").json[0]["revision"]
    bad = tool("bad", "pathlib.Path(sys.argv[1]).write_text('---\\nlimit: 1\\n---\\nmy long words\\n')")
    done = letta("memory", "edit", "system/human", "-m", "x", env={"EDITOR": f"'{bad}'"})
    assert done.code == 1
    kept = Path(done.err.rsplit("your text is kept in ", 1)[1].strip())
    assert kept.read_text().endswith("my long words\n")
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    failing = tool("failing", "pathlib.Path(sys.argv[1]).write_text('half'); sys.exit(3)")
    done = letta("memory", "edit", "system/human", "-m", "x", env={"EDITOR": f"'{failing}'"})
    assert done.code == 1
    assert "exit code 3" in done.err
    assert Path(done.err.rsplit("your text is kept in ", 1)[1].strip()).read_text() == "half"
    assert letta("memory", "log", "--json").json[0]["revision"] == head
    assert letta("memory", "status").out == ""


def test_ctrl_c_ends_the_editor_and_the_text_is_kept(letta: Letta, memory: Path, tool: Tool) -> None:
    source = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "pathlib.Path(sys.argv[1]).write_text('half'); print('typing', flush=True); signal.pause()"
    )
    process = on_terminal(letta, "memory", "edit", "system/human", EDITOR=f"'{tool('typing', source)}'")
    process.expect("typing")
    process.sendintr()
    said = " ".join(output(process).split())
    assert process.exitstatus == 1
    assert "was ended (SIGINT); nothing was committed" in said
    assert Path(said.rsplit("your text is kept in ", 1)[1]).read_text() == "half"


def test_what_others_commit_while_the_editor_is_open_is_never_lost(
    letta: Letta, memory: Path, tool: Tool
) -> None:
    """The editor itself has someone commit to the same line, and then saves its own."""
    other = letta.command("memory", "edit", "system/human", "-m", "Meanwhile")
    inner = tool(
        "inner", "f = pathlib.Path(sys.argv[1]); f.write_text(f.read_text().replace('tea', 'water'))"
    )
    source = (
        "import os, subprocess\n"
        f"environment = os.environ | {{'EDITOR': {inner!r}}}\n"
        f"subprocess.run({other!r}, check=True, stdout=subprocess.DEVNULL, env=environment)\n"
        "f = pathlib.Path(sys.argv[1]); f.write_text(f.read_text().replace('tea', 'wine'))"
    )
    done = letta("memory", "edit", "system/human", "-m", "Mine", env={"EDITOR": f"'{tool('outer', source)}'"})
    assert done.code == 1, done.out
    assert letta("memory", "log", "--json").json[0]["reason"] == "Meanwhile"
    assert "Likes water." in letta("memory", "show", "system/human").out
    kept = Path(done.err.rsplit("your text is kept in ", 1)[1].strip())
    assert "Likes wine." in kept.read_text()


def test_edit_does_not_touch_a_draft(letta: Letta, memory: Path) -> None:
    (memory / "system" / "human.md").write_text("a draft")
    done = letta("memory", "edit", "system/human", "-m", "x", env={"EDITOR": "false"})
    assert done.code == 1
    assert "draft" in done.err
    missing = letta("memory", "edit", "system/persona", "-m", "x", env={"EDITOR": "no-such-editor -w"})
    assert missing.code == 2
    assert "no-such-editor" in missing.err
