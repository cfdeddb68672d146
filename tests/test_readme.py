"""Every `letta` command that the README shows runs, in the order it is shown, against the scripted server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import warm_command
from tests.model_server import ModelServer

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def shown_commands() -> list[str]:
    """The lines of all `sh` blocks that start or pipe into `letta`, comments cut off."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [re.sub(r"\s{2,}#.*", "", line).strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.search(r'(^|[|"(]\s*|\$\()letta ', line)]


@pytest.mark.timeout(180)
def test_every_letta_command_of_the_readme_runs(tmp_path: Path) -> None:
    commands = shown_commands()
    assert len(commands) >= 8
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    haiku = {"name": "Write", "arguments": {"file_path": "haiku.txt", "content": "old pond\n"}}
    script: list[dict[str, object]] = [
        {"when": {"contains": "haiku"}, "tool_calls": [haiku]},
        {"text": "Done.", "repeat": True},
    ]
    with ModelServer(script) as server:
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "LETTA_HOME": str(tmp_path / "home"),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "x",
            "BROWSER": "true",
            "EDITOR": "sed -i.bak s/tea/coffee/",
        }
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "letta.git")], check=True)
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "CLAUDE.md").write_text("# Rules\n\nUse tabs.\n")
        # What a reader puts in the place of the README's examples; here nobody can be asked for a reason.
        own = {
            "revert REV": "revert HEAD",
            "host:letta.git": str(tmp_path / "letta.git"),
            "edit system/human.md": "edit system/human.md -m 'another drink'",
        }

        def run(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-c", command],
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
            )

        assert run('letta -p "hello"').returncode == 0  # makes the agent that the others look at
        memory = run("letta memory path").stdout.strip()
        (tmp_path / "bin").mkdir()
        warm_command(tmp_path / "bin" / "letta")
        environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
        (Path(memory) / "system" / "human.md").write_text("---\ndescription: who\n---\nPrefers tea.\n")
        assert run("letta memory commit -m 'what I like'").returncode == 0
        for command in commands:
            done = run(re.sub("|".join(own), lambda m: own[m[0]], command))
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_the_two_commands_exist_and_are_executable() -> None:
    for script in ("scripts/run", "scripts/test"):
        assert script in README
        assert os.access(ROOT / script, os.X_OK)


def test_files_that_the_readme_links_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
