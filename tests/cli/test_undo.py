"""`letta undo` after real turns: what file tools and commands changed goes back, the conversation follows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.harness import Done, Letta
from tests.frontends.terminal import Terminal
from tests.model_server import ModelServer, call, turn


def asking(letta: Letta, server: ModelServer, provider: str = "VLLM") -> Letta:
    letta.environment = {f"{provider}_BASE_URL": server.url, f"{provider}_API_KEY": "x"}
    return letta


def edit(path: str, old: str, new: str) -> dict[str, Any]:
    return call("Edit", file_path=path, old_string=old, new_string=new)


def work(letta: Letta, *words: str) -> Done:
    done = letta("-p", "--permission-mode", "bypassPermissions", *words)
    assert done.code == 0, done.err
    return done


@contextmanager
def chat(letta: Letta, *words: str) -> Iterator[Terminal]:
    terminal = Terminal(letta.project, letta.command(*words), letta.variables({"TERM": "xterm-256color"}))
    try:
        terminal.until("/help shows")
        yield terminal
    finally:
        terminal.process.close(force=True)


def times(words: str, count: int) -> Callable[[str], bool]:
    return lambda text: text.count(words) == count


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_h04_the_last_turns_files_go_back_outside_git(letta: Letta, tmp_path: Path) -> None:
    letta.project = tmp_path / "plain"
    letta.project.mkdir()
    (letta.project / "a.py").write_text("one\n")
    script = [
        turn("", edit("a.py", "one", "two"), call("Write", file_path="new/b.py", content="b\n")),
        turn("Done."),
        turn("Fine."),
        turn("I see."),
    ]
    with ModelServer(script) as server:
        asking(letta, server)
        work(letta, "change it")
        assert (letta.project / "a.py").read_text() == "two\n"
        shown = letta("undo", "--dry-run")
        assert "restore   a.py" in shown.out
        assert "remove    new/b.py (it was new)" in shown.out
        assert (letta.project / "new" / "b.py").exists()
        done = letta("undo")
        assert (done.code, done.err) == (0, "")
        assert (letta.project / "a.py").read_text() == "one\n"
        assert os.listdir(letta.project) == ["a.py"]
        work(letta, "-c", "and now?")
        told = json.dumps(server.requests[-1].body)
        assert (
            "The person undid file changes of turn 1; changed back: a.py; removed (new ones): new/b.py."
            in told
        )
        assert "no turn of this conversation changed a file" in letta("undo").out
        assert letta("undo", "--redo", "--drop-messages").code == 2
        assert letta("undo", "--redo").code == 0
        assert (letta.project / "new" / "b.py").read_text() == "b\n"
        assert "no undo to take back" in letta("undo", "--redo").out
        (letta.project / "a.py").write_text("one\n")  # as an undo that is broken off here
        (letta.project / "new" / "b.py").unlink()
        assert "as it was a.py" in letta("undo").out
        assert os.listdir(letta.project) == ["a.py"]
        work(letta, "-c", "and now?")
        assert json.dumps(server.requests[-1].body).count("; changed back: a.py; removed (new ones)") == 2
        (conversation,) = letta("conversations", "list", "--json").json
        assert list(letta.home.rglob("journal.jsonl"))
        assert letta("conversations", "delete", conversation["id"], "--yes").code == 0
        assert not list(letta.home.rglob("journal.jsonl"))


def prepared_repository(letta: Letta) -> dict[str, bytes]:
    """A repository with modified tracked files, a staged one, untracked and ignored ones, and a stash."""
    project = letta.project
    for name in ("tracked.py", "staged.py", "other.py", "src/deep.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(f"{name} committed\n")
    (project / ".gitignore").write_text("ignored.txt\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "first")
    (project / "other.py").write_text("stashed\n")
    git(project, "stash", "-q")
    (project / "tracked.py").write_text("precious work\n")
    (project / "tracked.py").chmod(0o755)
    (project / "staged.py").write_text("staged work\n")
    git(project, "add", "staged.py")
    (project / "notes.txt").write_text("untracked notes\n")
    (project / "drafts").mkdir()
    (project / "drafts" / "日本.md").write_text("draft\n")
    (project / "link").symlink_to("notes.txt")
    (project / "ignored.txt").write_text("ignored\n")
    return contents(project)


def contents(project: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(project)): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in project.rglob("*")
        if ".git" not in path.parts and (path.is_symlink() or path.is_file())
    }


def git_state(project: Path) -> str:
    """Everything of Git's that an undo must not touch: index, refs, stash."""
    index = (project / ".git" / "index").read_bytes().hex()
    return (
        index
        + git(project, "for-each-ref")
        + git(project, "stash", "list")
        + git(project, "rev-parse", "HEAD")
    )


DESTRUCTIVE = (
    "git reset -q --hard",
    "git checkout -q -- . && git clean -qfd",
    "rm -rf drafts src *.py notes.txt link",
)


def test_h02_destructive_commands_that_were_allowed_are_taken_back_in_the_chat(letta: Letta) -> None:
    before = prepared_repository(letta)
    script = []
    for number, command in enumerate(DESTRUCTIVE, 1):
        script += [turn("", call("Bash", command=command)), turn(f"Cleaned {number}.")]
    with ModelServer(script) as server, chat(asking(letta, server)) as terminal:
        for number, command in enumerate(DESTRUCTIVE, 1):
            terminal.type(f"clean up {number}\r")
            terminal.until(times("1 once · 2 no", number))
            terminal.type("1\r")
            terminal.until(f"Cleaned {number}.")
            assert contents(letta.project) != before, command
            state = git_state(letta.project)
            terminal.type("/undo --commands\r")
            terminal.until(times(" cancel ›", number))
            assert contents(letta.project) != before
            terminal.type("1\r")
            terminal.until(times(f"\nturn {number}\n", 2))
            assert contents(letta.project) == before
            assert (letta.project / "tracked.py").stat().st_mode & 0o777 == 0o755
            assert git_state(letta.project) == state
        terminal.type("/exit\r")
        assert terminal.left() == 0
        server.assert_finished()


def test_what_a_command_made_goes_only_when_told_and_only_unchanged(letta: Letta) -> None:
    (letta.project / "mine.txt").write_text("mine\n")
    command = "mkdir -p out/deep && echo a > out/deep/a.txt && echo b > out/b.txt && echo c > c.txt"
    script = [
        turn("", call("Write", file_path="own.py", content="x\n")),
        turn("", call("Bash", command=command)),
    ]
    with ModelServer([*script, turn("Done.")]) as server:
        asking(letta, server)
        work(letta, "build")
    (letta.project / "c.txt").write_text("mine now\n")
    (letta.project / "later.txt").write_text("later\n")
    done = letta("undo")
    assert done.code == 0
    assert "out/deep/a.txt" in done.out
    assert sorted(contents(letta.project)) == [
        "c.txt",
        "later.txt",
        "mine.txt",
        "out/b.txt",
        "out/deep/a.txt",
    ]
    done = letta("undo", "--commands")
    assert done.code == 1
    assert "c.txt: changed since; --over-my-changes" in done.out
    assert sorted(contents(letta.project)) == ["c.txt", "later.txt", "mine.txt"]
    assert not (letta.project / "out").exists()


def test_e45_files_that_only_became_visible_to_git_are_not_removed(letta: Letta) -> None:
    (letta.project / ".gitignore").write_text("secret.txt\n")
    (letta.project / "secret.txt").write_text("mine\n")
    command = "echo > .gitignore; echo changed > secret.txt; echo > new.txt"
    with ModelServer([turn("", call("Bash", command=command)), turn("Done.")]) as server:
        asking(letta, server)
        work(letta, "show it")
    done = letta("undo", "--commands")
    assert "removed   new.txt" in done.out
    assert contents(letta.project) == {".gitignore": b"secret.txt\n", "secret.txt": b"changed\n"}


def test_a_formatter_after_an_edit_is_taken_back_with_commands(letta: Letta) -> None:
    (letta.project / "a.py").write_text("one\n")
    edits = [turn("", edit("a.py", "one", "two")), turn("", call("Bash", command="echo formatted >> a.py"))]
    with ModelServer([*edits, turn("Done.")]) as server:
        asking(letta, server)
        work(letta, "change it")
    done = letta("undo")
    assert done.code == 1
    assert "changed since, while `echo formatted >> a.py` ran; --commands takes that back, too" in done.out
    assert (letta.project / "a.py").read_text() == "two\nformatted\n"
    assert letta("undo", "--commands").code == 0
    assert (letta.project / "a.py").read_text() == "one\n"


def doubtful_project(letta: Letta, tmp_path: Path) -> Path:
    """Files for a command that is not seen to end, and a pipe on which it says that it is done with them."""
    (letta.project / "sub").mkdir()
    (letta.project / "sub" / "a.txt").write_text("a\n")
    (letta.project / "b.txt").write_text("b\n")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def assert_doubted(letta: Letta) -> None:
    (letta.project / "b.txt").write_text("mine\n")
    done = letta("undo", "--commands", "--json")
    results = {os.path.relpath(file["path"], letta.project): file for file in done.json["files"]}
    assert done.code == 1
    assert results["b.txt"]["why"] == "unsure"
    assert results["sub/a.txt"]["result"] == "restored"
    assert contents(letta.project) == {"b.txt": b"mine\n", "sub/a.txt": b"a\n"}
    assert letta("undo", "--commands", "--over-my-changes").code == 0
    assert contents(letta.project) == {"b.txt": b"b\n", "sub/a.txt": b"a\n"}


def test_a_command_in_the_background_is_doubted(letta: Letta, tmp_path: Path) -> None:
    pipe = doubtful_project(letta, tmp_path)
    command = f"rm sub/a.txt; echo x >> b.txt; echo done > {pipe}; sleep 1000"
    script = [
        turn("", call("Bash", command=command, run_in_background=True)),
        turn("", call("Bash", command=f"cat {pipe}")),
        turn("Done."),
    ]
    with ModelServer(script) as server:
        asking(letta, server)
        work(letta, "go")
    assert_doubted(letta)


def test_d06_a_command_that_kill_9_broke_off_is_doubted(letta: Letta, tmp_path: Path) -> None:
    pipe = doubtful_project(letta, tmp_path)
    command = f"rm sub/a.txt; echo x >> b.txt; echo done > {pipe}; sleep 1000"
    with ModelServer([turn("", call("Bash", command=command))]) as server:
        asking(letta, server)
        process = letta.start("-p", "--permission-mode", "bypassPermissions", "go")
        assert pipe.read_text() == "done\n"
        process.kill()
        process.communicate()
    assert_doubted(letta)


def test_a_command_that_was_interrupted_is_known_whole(letta: Letta, tmp_path: Path) -> None:
    pipe = doubtful_project(letta, tmp_path)
    before = contents(letta.project)
    command = f"mv sub/a.txt c.txt; echo x >> b.txt; echo new > sub/new; echo done > {pipe}; sleep 1000"
    with ModelServer([turn("", call("Bash", command=command))]) as server:
        asking(letta, server)
        process = letta.start("-p", "--permission-mode", "bypassPermissions", "go")
        assert pipe.read_text() == "done\n"
        process.send_signal(signal.SIGINT)
        process.communicate()
    done = letta("undo", "--commands")
    assert (done.code, "removed   sub/new" in done.out) == (0, True)
    assert contents(letta.project) == before


UPDATING = "anthropic/claude-opus-4-8"  # takes system messages inside a conversation


def test_dropped_messages_leave_and_what_memory_was_told_in_them_is_told_again(letta: Letta) -> None:
    (letta.project / "a.py").write_text("one\n")
    learn = call(
        "memory",
        command="create",
        file_path="system/taste",
        description="taste",
        file_text="I rhyme.",
        reason="said so",
        source="inferred",
    )
    script = [turn("First."), turn("", learn, edit("a.py", "one", "two")), turn("Second."), turn("Third.")]
    with ModelServer(script) as server, ModelServer([turn("Fourth.")]) as other:
        asking(letta, server, "ANTHROPIC")
        work(letta, "-m", UPDATING, "please begin")
        work(letta, "-c", "I like rhymes; please undo-me-later")
        memory = letta("memory", "log").out
        done = letta("undo", "--drop-messages")
        assert (done.code, done.err) == (0, "")
        assert "no longer part of the conversation: turn 2" in done.out
        assert "memory keeps: said so; `letta memory revert" in done.out
        assert (letta.project / "a.py").read_text() == "one\n"
        assert letta("memory", "log").out == memory
        work(letta, "-c", "and now?")
        sent = json.dumps(server.requests[-1].body)
        assert "I rhyme." in json.dumps(server.requests[-2].body["messages"])  # the update of turn 2
        assert "undo-me-later" not in sent
        assert "please begin" in sent
        assert "I rhyme." in sent
        assert "The person undid" not in sent
        assert (
            "undo-me-later"
            not in letta("conversations", "show", letta("conversations", "list", "--json").json[0]["id"]).out
        )
        assert "I rhyme." not in letta("context", "--turn", "1").out
        assert letta("context", "--turn", "2").code == 0
        asking(letta, other, "OPENAI")
        work(letta, "-c", "-m", "openai/gpt-5.2", "the other provider")
        assert (server.violations, other.violations) == ([], [])


def test_all_messages_may_be_dropped(letta: Letta) -> None:
    write = call("Write", file_path="a.py", content="x\n")
    with ModelServer([turn("", write), turn("First."), turn("Second.")]) as server:
        asking(letta, server)
        work(letta, "please begin")
        (letta.project / "a.py").write_text("mine\n")
        done = letta("undo", "--drop-messages", "--json")
        assert done.code == 1
        assert done.json["dropped_turns"] == [1]
        assert [file["why"] for file in done.json["files"]] == ["newer"]
        assert (letta.project / "a.py").read_text() == "mine\n"
        work(letta, "-c", "and now?")
        sent = json.dumps(server.requests[-1].body["messages"])
        assert server.violations == []
    assert "please begin" not in sent
    assert "Working directory: " in sent
    assert "Messages were taken back, but these files keep what was changed since: a.py." in sent


def test_undo_in_the_chat_asks_and_tells_the_model_and_is_refused_elsewhere(letta: Letta) -> None:
    (letta.project / "a.py").write_text("one\n")
    script = [turn("", edit("a.py", "one", "two")), turn("Changed."), turn("I see."), turn("Again.")]
    with (
        ModelServer(script) as server,
        chat(asking(letta, server), "--permission-mode", "acceptEdits") as terminal,
    ):
        terminal.type("change it\r")
        terminal.until("Changed.")
        terminal.type("/undo\r")
        terminal.until("1 files · 2 files and messages · 3 cancel ›")
        terminal.type("3\r")
        terminal.until("nothing was changed")
        assert (letta.project / "a.py").read_text() == "two\n"
        refused = letta("undo")
        assert refused.code == 1
        assert "is open in another process" in refused.err
        assert "say /undo there, or close it" in refused.err
        assert "restore   a.py" in letta("undo", "--dry-run").out
        terminal.type("/undo 1\r")
        terminal.until(times(" cancel ›", 2))
        terminal.type("1\r")
        terminal.until("restored  a.py")
        terminal.type("what now?\r")
        terminal.until("I see.")
        assert "changed back: a.py" in json.dumps(server.requests[-1].body)
        terminal.type("/undo --redo\r")
        terminal.until("1 do it · 2 cancel")
        terminal.type("1\r")
        terminal.until(times("restored  a.py", 2))
        terminal.type("/undo sideways\r")
        terminal.until("/undo does not know")
        terminal.type("and now?\r")
        terminal.until("Again.")
        assert "turn 1 back after an undo: a.py" in json.dumps(server.requests[-1].body)
    assert (letta.project / "a.py").read_text() == "two\n"


def test_the_chat_offers_what_a_formatter_did(letta: Letta) -> None:
    (letta.project / "a.py").write_text("one\n")
    script = [
        turn("", edit("a.py", "one", "two"), call("Bash", command="echo formatted >> a.py")),
        turn("Changed."),
    ]
    bypass = ("--permission-mode", "bypassPermissions")
    with ModelServer(script) as server, chat(asking(letta, server), *bypass) as terminal:
        terminal.type("change it\r")
        terminal.until("Changed.")
        terminal.type("/undo\r")
        terminal.until("3 files, also what commands changed")
        terminal.type("3\r")
        terminal.until("restored  a.py")
    assert (letta.project / "a.py").read_text() == "one\n"
