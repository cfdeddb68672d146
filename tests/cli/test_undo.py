"""`letta undo` after real turns: what file tools and commands changed goes back, the conversation follows."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path



from tests.cli.harness import Done, Letta
from tests.model_server import ModelServer, call, turn


def asking(letta: Letta, server: ModelServer, provider: str = "VLLM") -> Letta:
    letta.environment = {f"{provider}_BASE_URL": server.url, f"{provider}_API_KEY": "x"}
    return letta


def edit(path: str, old: str, new: str) -> object:
    return call("Edit", file_path=path, old_string=old, new_string=new)


def work(letta: Letta, *words: str) -> Done:
    done = letta("-p", "--permission-mode", "bypassPermissions", *words)
    assert done.code == 0, done.err
    return done


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
        assert "The person undid file changes of turn 1; changed back: a.py; removed (new ones): new/b.py." in told
        assert "no turn of this conversation changed a file" in letta("undo").out
