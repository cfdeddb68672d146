"""The sandbox in the real program: how it is asked for, what the model and the person are told, and that
nothing runs without it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.harness import Done, Letta
from tests.frontends.terminal import Terminal
from tests.model_server import ModelServer, call, turn

OUTSIDE = "python3 -c \"open('../outside/new', 'w')\"; echo code $?"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([turn("", call("Bash", command=OUTSIDE)), turn("Done.")]) as running:
        yield running


@pytest.fixture
def boxed(letta: Letta, server: ModelServer, tmp_path: Path) -> Letta:
    for name in ("outside", "tmp", "no-bwrap"):
        (tmp_path / name).mkdir()
    for program in ("bash", "git", "python3"):
        found = shutil.which(program)
        assert found is not None
        (tmp_path / "no-bwrap" / program).symlink_to(found)
    letta.environment = {
        "VLLM_BASE_URL": server.url,
        "VLLM_API_KEY": "x",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    return letta


def ask(letta: Letta, *words: str, **environment: str) -> Done:
    mode = ("--permission-mode", "bypassPermissions")
    return letta("-p", "-m", "vllm/scripted", *mode, *words, "go", env=environment)


def told(server: ModelServer) -> str:
    """The result of the command, as the model read it."""
    return json.dumps(server.requests[-1].body["messages"][-1], ensure_ascii=False)


def test_the_flag_puts_commands_into_the_sandbox(boxed: Letta, server: ModelServer, tmp_path: Path) -> None:
    done = ask(boxed, "--sandbox")
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert "Read-only file system" in told(server)
    assert "code 1" in told(server)
    assert list((tmp_path / "outside").iterdir()) == []
    bash = next(
        tool["function"] for tool in server.requests[0].body["tools"] if tool["function"]["name"] == "Bash"
    )
    assert "Commands run in a sandbox: they can write only to the project," in bash["description"]


def test_without_the_setting_and_with_the_other_flag_there_is_none(
    boxed: Letta, server: ModelServer, tmp_path: Path
) -> None:
    assert boxed("config", "set", "sandbox.enabled", "true").code == 0
    assert ask(boxed, "--no-sandbox").code == 0
    assert "code 0" in told(server)
    assert "sandbox" not in json.dumps(server.requests[0].body["tools"])
    assert (tmp_path / "outside" / "new").exists()


def test_a_projects_settings_tighten_and_never_loosen(
    boxed: Letta, server: ModelServer, tmp_path: Path
) -> None:
    folder = boxed.project / ".letta"
    folder.mkdir()
    loose = {"sandbox": {"enabled": False, "network": True, "write": [str(tmp_path / "outside")]}}
    (folder / "settings.local.json").write_text(json.dumps(loose))
    tight = {"sandbox": {"enabled": True, "network": False}}
    (folder / "settings.json").write_text(json.dumps(tight))
    assert ask(boxed).code == 0
    assert "Read-only file system" in told(server)
    assert list((tmp_path / "outside").iterdir()) == []
    assert "There is no network" in json.dumps(server.requests[0].body["tools"])
    (folder / "settings.json").write_text('{"sandbox": {"enabled": "yes"}}')
    wrong = ask(boxed)
    assert wrong.code == 2
    assert "sandbox.enabled 'yes' is not known" in wrong.err


def test_what_is_set_is_checked(letta: Letta) -> None:
    assert letta("config", "set", "sandbox.network", "false").code == 0
    for key, value in (("sandbox.enabled", "maybe"), ("sandbox.write", "true"), ("sandbox", "[]")):
        assert letta("config", "set", key, value).code == 2
    agents = letta("config", "set", "sandbox.enabled", "false", env={"LETTA_AGENT_ID": "agent-1"})
    assert agents.code == 2
    assert json.loads(letta("config", "get").out) == {"sandbox": {"network": False}}


def test_one_shot_without_bubblewrap_ends_before_the_first_request(
    boxed: Letta, server: ModelServer, tmp_path: Path
) -> None:
    without = {"PATH": str(tmp_path / "no-bwrap")}
    assert boxed("config", "set", "sandbox.enabled", "true").code == 0
    done = ask(boxed, **without)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "letta: the sandbox is asked for and bubblewrap (bwrap) is not installed\n"
        "       apt-get install bubblewrap, or --no-sandbox\n"
    )
    assert server.requests == []
    asked = ask(boxed, "--output-format", "stream-json", **without)
    assert asked.code == 1
    assert asked.json["error"]["kind"] == "setup"
    assert ask(boxed, "--no-sandbox", **without).code == 0


def test_one_shot_where_namespaces_are_forbidden(boxed: Letta, server: ModelServer, tmp_path: Path) -> None:
    program = tmp_path / "no-bwrap" / "bwrap"
    program.write_text("#!/bin/bash\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    program.chmod(0o700)
    done = ask(boxed, "--sandbox", PATH=str(program.parent))
    assert done.code == 1
    assert "bubblewrap does not work here (bwrap: setting up uid map: Permission denied)" in done.err
    assert "allow user namespaces" in done.err
    assert server.requests == []


def test_a_chat_without_bubblewrap_says_so_and_runs_no_command(
    boxed: Letta, server: ModelServer, tmp_path: Path
) -> None:
    words = ("-m", "vllm/scripted", "--permission-mode", "bypassPermissions", "--sandbox")
    variables = boxed.variables({"PATH": str(tmp_path / "no-bwrap"), "TERM": "xterm"})
    chat = Terminal(boxed.project, boxed.command(*words), variables)
    screen = chat.until("›")
    assert "no shell command will run: bubblewrap (bwrap) is not installed. apt-get install bubblewrap" in (
        " ".join(screen.split())
    )
    assert "sandbox missing: no command runs" in screen
    chat.type("go\r")
    chat.until("Done.")
    chat.type("/permissions\r")
    chat.until("shell: sandbox missing: no command runs")
    chat.type("/exit\r")
    assert chat.left() == 0
    assert "no command can run: the sandbox is asked for" in told(server)
    assert list((tmp_path / "outside").iterdir()) == []


def test_doctor_says_whether_it_is_set_there_and_active(boxed: Letta, tmp_path: Path) -> None:
    without = {"PATH": str(tmp_path / "no-bwrap")}
    assert "sandbox: off, shell commands run as you; bubblewrap" in boxed("doctor").out
    off = boxed("doctor", env=without).out
    assert "ok   sandbox: off, shell commands run as you; bubblewrap (bwrap) is not installed" in off
    wanted = {"enabled": True, "network": False, "write": [str(tmp_path / "missing")]}
    assert boxed("config", "set", "sandbox", json.dumps(wanted)).code == 0
    active = boxed("doctor")
    assert "ok   sandbox: asked for and active, bubblewrap" in active.out
    assert "network off" in active.out
    assert f"BAD  sandbox.write: {tmp_path}/missing does not exist" in active.out
    missing = boxed("doctor", env=without)
    assert missing.code == 1
    assert "BAD  sandbox: asked for and missing, so no shell command runs" in missing.out
    assert "apt-get install bubblewrap" in missing.out


PLANTED = """
for name in rg git; do
    printf '#!/bin/sh\\necho ran >> %s/outside/ran; exec /usr/bin/%s "$@"\\n' "$1" $name > bin/$name
    chmod +x bin/$name
done
export GIT_CONFIG_GLOBAL=/dev/null
git init -q sub && cd sub && echo '* filter=x' > .gitattributes && echo a > a && git add . &&
git -c user.name=a -c user.email=a@b commit -qm a &&
git config filter.x.clean "echo ran >> $1/outside/ran; cat" &&
git config core.fsmonitor "echo ran >> $1/outside/ran" && echo b > a && cd .. &&
git update-index --add --cacheinfo 160000,$(git -C sub rev-parse HEAD),sub && echo planted
"""


def test_what_a_command_left_is_not_run_outside_by_this_program(boxed: Letta, tmp_path: Path) -> None:
    """Ripgrep and git are taken from no folder that commands write, and git looks into no submodule."""
    (boxed.project / "bin").mkdir()
    (boxed.project / "plant").write_text(PLANTED)
    where = {"PATH": f"{boxed.project}/bin:bin:{boxed.variables()['PATH']}"}
    plant = turn("", call("Bash", command=f"PATH=/usr/bin:/bin bash plant {tmp_path}"))
    with ModelServer([plant, turn("", call("Grep", pattern="x")), turn("Done.", repeat=True)]) as running:
        where["VLLM_BASE_URL"] = running.url
        assert ask(boxed, "--sandbox", **where).code == 0
        results = json.dumps(running.requests[-1].body["messages"])
        assert "planted" in results, results
        assert ask(boxed, "--sandbox", **where).code == 0
        assert "Git branch" in json.dumps(running.requests[-1].body["messages"])
    assert list((tmp_path / "outside").iterdir()) == []
