"""Starting: what is imported, help, usage errors, bugs, odd environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import Letta
from tests.model_server import ModelServer

HEAVY = ("anthropic", "openai", "tiktoken", "acp", "mcp")


def imported(letta: Letta, *words: str) -> set[str]:
    """The top-level modules that a run has loaded at its end."""
    code = (
        "import sys, json\n"
        f"sys.argv = ['letta', *{list(words)!r}]\n"
        "from letta_code.__main__ import main\n"
        "code = main()\n"
        "json.dump(sorted({name.split('.')[0] for name in sys.modules}), sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=letta.project,
        env=letta.variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_version_loads_nothing_heavy_and_help_and_memory_log_load_no_sdk(letta: Letta) -> None:
    assert letta("agents", "create", "--name", "letta").code == 0
    assert imported(letta, "--version").isdisjoint({*HEAVY, "typer", "pydantic", "pygit2", "rich", "asyncio"})
    assert imported(letta, "--help").isdisjoint({*HEAVY, "pydantic", "pygit2"})
    assert imported(letta, "memory", "log").isdisjoint(HEAVY)


def test_a_turn_loads_the_sdk_of_its_model_and_no_tokenizer(letta: Letta, vocabularies: Path) -> None:
    letta.environment |= {"OPENAI_API_KEY": "x", "TIKTOKEN_CACHE_DIR": str(vocabularies)}
    with ModelServer([{"text": "Hello."}]) as server:
        letta.environment["OPENAI_BASE_URL"] = f"{server.url}/v1"
        loaded = imported(letta, "-p", "--model", "openai/gpt-6.2-sol", "hello")
    assert "openai" in loaded
    assert loaded.isdisjoint({"anthropic", "tiktoken", "tiktoken_ext", "acp", "mcp"})


def test_certificates_that_are_none_are_one_line(letta: Letta) -> None:
    """libgit2 reads them when it is loaded, long before anything is asked of a server."""
    none = letta.project / "none.pem"
    none.write_text("no certificate\n")
    done = subprocess.run(
        letta.command("memory", "log"),
        env=letta.variables({"SSL_CERT_FILE": str(none)}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    first, *hint = done.stderr.splitlines()
    assert "SSL_CERT_FILE" in first
    assert len(hint) == 1


def test_f19_help_is_complete_and_clean_whatever_the_pager(letta: Letta) -> None:
    pager = {"MANPAGER": "bat -l man", "PAGER": "", "NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "100"}
    done = letta("--help", env=pager)
    assert done.code == 0
    assert "\x1b" not in done.out
    assert done.err == ""
    options = (
        "--model --agent --new-agent --continue --conversation --new --output-format --permission-mode "
        "--allowed-tools --disallowed-tools --max-turns --system-prompt --append-system-prompt --cwd "
        "--add-dir --base-url --verbose --version -p -m -a -c -C"
    )
    for word in options.split():
        assert word in done.out
    for word in ["agents", "conversations", "memory", "context", "models", "config", "doctor"]:
        assert f"\n  {word}" in done.out


def test_every_subcommand_has_help(letta: Letta) -> None:
    from typer.main import get_command

    from letta_code.cli.main import app

    root = get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        for one in (command, *getattr(command, "commands", {}).values()):
            assert one.help, (name, one.name)
            for parameter in one.params:
                assert getattr(parameter, "help", ""), (name, one.name, parameter.name)


def test_f20_a_misspelt_option_is_refused_with_a_suggestion(letta: Letta) -> None:
    done = letta("-p", "--modle", "x", "hi")
    assert (done.code, done.out) == (2, "")
    assert "--model" in done.err
    assert not letta.home.exists()


@pytest.mark.parametrize(
    "words", [("memory", "lgo"), ("memory", "log", "--nope"), ("--max-turns", "0", "-p", "x")]
)
def test_wrong_words_are_usage_errors(letta: Letta, words: tuple[str, ...]) -> None:
    done = letta(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("letta: ")
    assert "Traceback" not in done.err


def test_options_of_a_prompt_before_a_subcommand_are_refused(letta: Letta) -> None:
    done = letta("--model", "a/b", "agents", "list")
    assert done.code == 2
    assert "agents" in done.err


def test_f02_without_a_model_it_says_at_once_how_to_get_one_and_makes_nothing(letta: Letta) -> None:
    done = letta("-p", "hi")
    assert done.code == 1
    assert done.out == ""
    assert "ANTHROPIC_API_KEY" in done.err
    assert "--base-url" in done.err
    assert not (letta.home / "memfs").exists()


def test_f02_a_program_that_reads_json_gets_a_result_object_then(letta: Letta) -> None:
    done = letta("-p", "--output-format", "json", "hi")
    assert done.code == 1
    assert done.json["type"] == "result"
    assert done.json["is_error"] is True
    assert done.json["error"]["kind"] == "no_model"
    missing = letta("-p", "--output-format", "stream-json", "--agent", "nobody", "hi")
    assert missing.code == 1
    assert missing.json["is_error"] is True
    assert "nobody" in missing.err


def test_c08_a_prompt_of_white_space_is_refused_here(letta: Letta) -> None:
    done = letta("-p", stdin=" \n")
    assert (done.code, done.out) == (2, "")
    assert letta("-p", "  ").code == 2


def test_f14_without_home_it_runs_with_defaults_and_one_warning(letta: Letta, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"LETTA_HOME": "", "HOME": str(tmp_path / "nonexistent"), "TMPDIR": str(temporary)}
    done = letta("config", "path", env=env)
    assert done.code == 0
    assert str(temporary) in done.out
    assert not (tmp_path / "nonexistent").exists()


def test_f14_settings_that_cannot_be_read_are_one_warning(letta: Letta) -> None:
    letta.home.mkdir()
    (letta.home / "config").write_text("a file in the way")
    done = letta("doctor")
    assert done.code == 1
    assert done.out.count("defaults are used") == 1
    assert "Traceback" not in done.err


def test_f16_a_folder_below_an_unreadable_git_starts(letta: Letta) -> None:
    inner = letta.project / "inner"
    inner.mkdir()
    (letta.project / ".git").chmod(0)
    try:
        assert letta("config", "path", cwd=inner).code == 0
        assert letta("memory", "path", cwd=inner).err.startswith("letta: there is no agent yet")
    finally:
        (letta.project / ".git").chmod(0o700)


def test_a_closed_pipe_ends_quietly(letta: Letta) -> None:
    assert letta("agents", "create", "--name", "letta").code == 0
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m letta_code memory log 2>err | true; cat err'],
        cwd=letta.project,
        env=letta.variables(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""


def test_a_bug_is_one_line_and_its_traceback_is_in_a_private_file_without_secrets(letta: Letta) -> None:
    code = (
        "import sys\n"
        "from letta_code.cli import entry\n"
        "import letta_code.cli.main as main\n"
        "sys.argv = ['letta']\n"
        "import typer\n"
        "@main.app.command('boom')\n"
        "def boom() -> None:\n"
        "    'A command with a bug.'\n"
        "    raise RuntimeError('no key sk-very-secret-value here')\n"
        "sys.exit(entry.run(['boom']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=letta.project,
        env=letta.variables({"SOME_API_KEY": "sk-very-secret-value"}),
        capture_output=True,
        text=True,
        check=False,
    )
    log = letta.home / "log" / "letta.log"
    assert done.returncode == 1
    assert str(log) in done.stderr
    assert "Traceback" not in done.stderr
    text = log.read_text()
    assert "RuntimeError" in text
    assert "sk-very-secret-value" not in text
    assert os.stat(log).st_mode & 0o777 == 0o600


def test_shell_completion_knows_commands_options_and_agents(letta: Letta) -> None:
    assert letta("agents", "create", "--name", "reviewer").code == 0

    def complete(words: str) -> str:
        env = {
            "_LETTA_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        return letta(env=env).out

    assert "memory" in complete("letta mem")
    assert "--model" in complete("letta --mod")
    assert "revert" in complete("letta memory rev")
    assert "reviewer" in complete("letta --agent rev")
