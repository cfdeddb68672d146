"""`letta memory log | show | diff | blame | search | revert | restore`: what they print and change.

The command line runs in this process, but for what only a process of its own can show.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.harness import Here


@pytest.fixture
def memory(here: Here) -> Path:
    """The memory folder of an agent that learned something twice."""
    assert here("agents", "create", "--name", "letta", "--block", "human=Likes tea.").code == 0
    folder = Path(here("memory", "path").out.strip())
    learn(here, folder, "Likes tea.", "Likes coffee.", "She changed her mind")
    return folder


def learn(here: Here, memory: Path, old: str, new: str, why: str) -> str:
    human = memory / "system" / "human.md"
    human.write_text(human.read_text().replace(old, new))
    made = here("memory", "commit", "-m", why)
    assert made.code == 0, made.err
    return made.out.split()[0]


def test_why_do_you_believe_this(here: Here, memory: Path) -> None:
    head = here("memory", "log", "--json").json[0]
    blamed = here("memory", "blame", "system/human").out
    assert f"{head['revision'][:10]}  " in blamed
    assert "(user-stated)\n    She changed her mind\n" in blamed
    assert blamed.endswith("4 │ Likes coffee.\n")
    last = here("memory", "blame", "system/human.md", "--json").json[-1]
    assert last == {
        "line": 4,
        "text": "Likes coffee.",
        "revision": head["revision"],
        "when": head["when"],
        "author": head["author"],
        "source": "user-stated",
        "conversation": "",
        "reason": "She changed her mind",
        "path": "system/human.md",
        "original_line": 4,
    }
    assert "Start memory" in here("memory", "blame", "HEAD~1:system/human.md").out
    assert "She changed" not in here("memory", "blame", "HEAD~1:system/human.md").out


def test_e32_search_finds_it_at_once_from_any_folder(here: Here, memory: Path) -> None:
    below = here.letta.project / "deep" / "er"
    below.mkdir(parents=True)
    for folder in (here.letta.project, below, memory / "system"):
        found = here("memory", "search", "COFFEE", "--json", cwd=folder).json
        assert found["hits"] == [{"path": "system/human.md", "line": 4, "text": "Likes coffee."}]
        assert found["revision"] == here("memory", "log", "--json", cwd=folder).json[0]["revision"]
    assert here("memory", "search", "coffee").out == "system/human.md\n    4: Likes coffee.\n"
    nothing = here("memory", "search", "tea")
    assert (nothing.code, nothing.out) == (1, "")
    (passage,) = here("memory", "search", "tea", "--history", "--json").json
    assert passage["added"]["reason"] == "Start memory"
    assert passage["removed"]["reason"] == "She changed her mind"
    assert "removed  " in here("memory", "search", "tea", "--history").out


def test_paths_are_those_of_memory_and_those_of_its_folder(here: Here, memory: Path) -> None:
    whole = here("memory", "show", "system/human.md").out
    assert here("memory", "show", "human", cwd=memory / "system").out == whole
    assert here("memory", "show", str(memory / "system" / "human.md")).out == whole
    assert here("memory", "log", "--path", str(memory / "system"), "--json").json[0]["paths"] == [
        "system/human.md"
    ]
    assert here("memory", "log", "human.md", "-n", "1", cwd=memory / "system").out.count("changed her") == 1


def test_log_takes_a_time_and_an_author(here: Here, memory: Path) -> None:
    assert len(here("memory", "log", "--since", "3d", "--json").json) == 2
    assert len(here("memory", "log", "--since", "2 weeks ago", "--json").json) == 2
    assert here("memory", "log", "--since", "2999-01-01", "--json").json == []
    assert [made["reason"] for made in here("memory", "log", "--author", "PERSON", "--json").json] == [
        "She changed her mind"
    ]
    bad = here("memory", "log", "--since", "whenever")
    assert bad.code == 2
    assert "whenever" in bad.err
    assert "2 weeks ago" in bad.err


def test_show_and_diff_of_revisions(here: Here, memory: Path) -> None:
    head = here("memory", "log", "--json").json[0]
    shown = here("memory", "show", head["revision"][:8]).out
    assert f"commit        {head['revision']}\n" in shown
    assert "source        user-stated\n" in shown
    assert "-Likes tea.\n+Likes coffee.\n" in shown
    assert here("memory", "show", "HEAD", "--json").json["diff"] in shown
    assert "+Likes tea." in here("memory", "show", "HEAD~1").out
    whole = here("memory", "diff", "HEAD~1", "HEAD").out
    assert here("memory", "diff", "HEAD~1..HEAD").out == whole
    assert here("memory", "diff", "HEAD~1..").out == whole
    assert here("memory", "diff", "HEAD~1").out == whole
    assert here("memory", "diff").out == ""
    assert here("memory", "show", "HEAD~1:system/human.md").out.endswith("Likes tea.\n")


def test_what_is_unknown_is_said_with_what_is_near(here: Here, memory: Path) -> None:
    for words, near in (
        (("show", "quux"), "letta memory search"),
        (("show", "system/humn"), "system/human.md"),
        (("blame", "human"), "system/human.md"),
        (("log", "system/humam.md"), "system/human.md"),
        (("show", "nope:system/human.md"), "letta memory log"),
        (("diff", "HEAD..nope"), "letta memory log"),
        (("revert", "HEAD~7"), "letta memory log"),
        (("restore", "system/humn.md", "--from", "HEAD~1"), "system/human.md"),
    ):
        done = here("memory", *words)
        assert done.code == 1, words
        assert near in done.err, (words, done.err)
        assert "Traceback" not in done.err


def test_e45_restore_lists_its_effects_first_and_keeps_what_is_not_committed(
    here: Here, memory: Path
) -> None:
    (memory / "system" / "mine.txt").write_text("untracked")
    head = here("memory", "log", "--json").json[0]["revision"]
    dry = here("memory", "restore", "system", "--from", "HEAD~1", "--dry-run")
    assert dry.out == "  changed      system/human.md\n  left alone   system/mine.txt\n"
    assert here("memory", "log", "--json").json[0]["revision"] == head
    done = here("memory", "restore", "system", "--from", "HEAD~1", "--json").json
    log = here("memory", "log", "--json").json
    assert done["revision"] == log[0]["revision"]
    assert log[0]["parent"] == head
    assert {"path": "system/mine.txt", "what": "kept"} in done["effects"]
    assert here("memory", "show", "system/human").out.endswith("Likes tea.\n")
    assert (memory / "system" / "mine.txt").read_text() == "untracked"
    assert here("memory", "restore", "system/human", "--from", "HEAD").code == 1


def test_a_revert_in_the_way_names_the_later_commit(here: Here, memory: Path) -> None:
    later = learn(here, memory, "coffee", "water", "No more coffee")
    done = here("memory", "revert", "HEAD~1")
    assert done.code == 1
    assert f'system/human.md ({later} "No more coffee")' in done.err
    assert here("memory", "revert", "HEAD").code == 0


def test_an_agents_shell_reverts_only_what_it_may_change(here: Here, memory: Path) -> None:
    agent = here("agents", "list", "--json").json[0]["id"]
    rule = memory / "system" / "rule.md"
    rule.write_text("---\ndescription: d\nread_only: true\n---\nNever.\n")
    assert here("memory", "commit", "-m", "A rule").code == 0
    shell = {"LETTA_AGENT_ID": agent, "LETTA_CONVERSATION_ID": "conv-1"}
    for words in (("revert", "HEAD"), ("restore", ".", "--from", "HEAD~1")):
        refused = here("memory", *words, env=shell)
        assert refused.code == 1
        assert "read-only" in refused.err
    assert here("memory", "revert", "HEAD", env=shell | {"LETTA_AGENT_ID": ""}).code == 0


@pytest.mark.parametrize(
    "words", [("log", "-n", "500"), ("show", "big"), ("search", "line"), ("blame", "big")]
)
def test_a_reader_that_leaves_early_is_no_failure(here: Here, memory: Path, words: tuple[str, ...]) -> None:
    text = "".join(f"line {number} {'x' * 60}\n" for number in range(4000))
    (memory / "big.md").write_text(f"---\ndescription: big\n---\n{text}")
    assert here("memory", "commit", "-m", "Big").code == 0
    process = here.letta.start("memory", *words)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 0
    process.stderr.close()


def test_the_shell_completes_paths_and_revisions(here: Here, memory: Path) -> None:
    def completed(words: str) -> list[str]:
        environment = {
            "_LETTA_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        done = subprocess.run(
            here.letta.command(),
            cwd=here.letta.project,
            env=here.letta.variables(environment),
            capture_output=True,
            text=True,
        )
        return done.stdout.split()

    assert completed("letta memory show system/h") == ["system/human.md"]
    head = here("memory", "log", "--json").json[0]["revision"]
    assert head[:10] in completed(f"letta memory revert {head[:3]}")


def test_control_characters_of_history_reach_no_terminal(here: Here, memory: Path) -> None:
    (memory / "odd.md").write_text("---\ndescription: odd\n---\nbell \x07 and \x1b[31mred\n")
    subprocess.run(["git", "add", "odd.md"], cwd=memory, check=True)
    who = ["-c", "user.name=E\x1b[31mve", "-c", "user.email=e@x"]
    subprocess.run(["git", *who, "commit", "-qm", "why\x1b[2J"], cwd=memory, check=True)
    for words in (
        ("log",),
        ("show", "HEAD"),
        ("blame", "odd"),
        ("search", "bell"),
        ("search", "bell", "--history"),
        ("diff", "HEAD~1", "HEAD"),
    ):
        done = here("memory", *words)
        assert done.code == 0, done.err
        assert "\x1b" not in done.out, words
        assert "\x07" not in done.out, words
    assert json.loads(here("memory", "log", "--json").out)[0]["reason"] == "why\x1b[2J"
