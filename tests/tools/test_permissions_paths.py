"""Paths, modes and rules: A24, A25."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from letta_code.core.tooling import ToolKind, ToolOutput
from letta_code.errors import UsageError
from letta_code.tools.base import Access, Arguments, Call, Tool, Workspace
from letta_code.tools.permissions.policy import Mode, Policy, Verdict
from letta_code.tools.permissions.rules import Rule, Rules
from letta_code.tools.shell import Bash, ShellPool


class PathArguments(Arguments):
    file_path: str = ""


class Toucher(Tool[PathArguments]):
    """A tool that says what it touches, as Read and Write do."""

    arguments = PathArguments

    def accesses(self, arguments: PathArguments) -> tuple[Access, ...]:
        if not arguments.file_path:
            return ()
        return (Access("read" if self.kind == "read" else "write", arguments.file_path),)

    def title(self, arguments: PathArguments) -> str:
        return self.name

    async def run(self, arguments: PathArguments, call: Call) -> ToolOutput:
        return ToolOutput.of("")


def tool(tool_name: str, tool_kind: ToolKind) -> Toucher:
    class Named(Toucher):
        name: ClassVar[str] = tool_name
        kind: ClassVar[ToolKind] = tool_kind

    return Named()


class Place:
    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.outside = folder / "project-secret"  # the project's name is a prefix of it
        for each in (self.project / "src", self.project / ".git", self.outside):
            each.mkdir(parents=True)
        (self.outside / "v").write_text("x")
        self.workspace = Workspace(self.project, (self.project,), folder / "overflow")

    def judge(
        self, name: str, path: str | Path, mode: Mode = "default", rules: Rules | None = None
    ) -> Verdict:
        kinds: dict[str, ToolKind] = {
            "Read": "read",
            "Grep": "read",
            "memory": "memory",
            "TodoWrite": "other",
        }
        policy = Policy(mode, rules or Rules(), self.workspace)
        return policy.judge(tool(name, kinds.get(name, "edit")), PathArguments(file_path=str(path)))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("LETTA_HOME", str(tmp_path / "letta"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Place(tmp_path)


def test_reads_inside_pass_and_outside_ask(place: Place) -> None:
    assert place.judge("Read", "src/a.py").decision == "allow"
    assert place.judge("Read", place.workspace.overflow / "Bash-1.txt").decision == "allow"
    modes: tuple[Mode, ...] = ("default", "acceptEdits", "plan")
    for mode in modes:
        verdict = place.judge("Read", place.outside / "v", mode)
        assert (verdict.decision, verdict.rule) == ("ask", f"Read(/{place.outside}/**)")
    granted = Rules(allow=(place.judge("Read", place.outside / "v").rule,))
    assert place.judge("Read", place.outside / "v", rules=granted).decision == "allow"
    assert place.judge("Edit", place.outside / "v", rules=granted).decision == "ask"


def test_writes_by_mode(place: Place) -> None:
    asked = place.judge("Write", "src/a.py")
    assert asked.decision == "ask"
    assert place.judge("MultiEdit", "b.py", rules=Rules(allow=(asked.rule,))).decision == "allow"
    assert place.judge("Write", "src/a.py", "acceptEdits").decision == "allow"
    assert place.judge("Write", "src/a.py", "plan").decision == "deny"
    assert place.judge("Write", "src/a.py", "bypassPermissions").decision == "allow"


@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
def test_a24_no_way_out_through_links_or_dots(place: Place, mode: Mode) -> None:
    (place.project / "link").symlink_to(place.outside)
    (place.project / "file").symlink_to(place.outside / "v")
    (place.project / "dangling").symlink_to(place.outside / "new")
    (place.project / "src" / "up").symlink_to("../..")
    (place.project / "loop").symlink_to("loop")
    ways = [
        "link/x",
        "file",
        "dangling",
        "../project-secret/v",
        "src/../../x",
        "src/up/x",
        "link/../x",
        "loop",
    ]
    for way in [*ways, place.outside / "x", "~/x"]:
        for rules in (Rules(), Rules(allow=("Edit(src/**)", "Edit(link/**)", "Edit"))):
            assert place.judge("Write", str(way), mode, rules).decision == "ask", way


def test_a24_a_rule_for_reading_in_the_project_leads_out_by_no_link(place: Place) -> None:
    (place.project / "docs").symlink_to(place.outside)
    (place.project / "conf").mkdir()
    (place.outside / "credentials").write_text("x")
    (place.project / "conf" / ".env").symlink_to(place.outside / "credentials")
    rules = Rules(allow=("Read(docs/**)", "Read(conf/.env)", "Read(~x/**)"))
    for name in ("docs/v", "docs", "conf/.env"):
        assert place.judge("Read", name, rules=rules).decision == "ask", name
        granted = Rules(allow=(f"Read(/{place.outside}/**)", f"Read(/{place.project}/conf/.env)"))
        assert place.judge("Read", name, rules=granted).decision == "allow", name


def test_a24_links_inside_are_no_obstacle(place: Place) -> None:
    (place.project / "inner").symlink_to("src")
    assert place.judge("Write", "inner/x", "acceptEdits").decision == "allow"


def test_a25_a_root_that_is_a_link_works(place: Place, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(place.project)
    place.workspace = Workspace(tmp_path / "alias", (tmp_path / "alias",), tmp_path / "overflow")
    assert place.judge("Write", "src/a.py", "acceptEdits").decision == "allow"
    assert place.judge("Read", place.project / "src" / "a.py").decision == "allow"
    rules = Rules(allow=("Edit(src/**)",))
    assert place.judge("Write", "src/a.py", rules=rules).decision == "allow"


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        ".letta/settings.json",
        ".letta/settings.local.json",
        "~/.bashrc",
    ],
)
def test_protected_files_ask_without_always(place: Place, path: str) -> None:
    verdict = place.judge("Edit", path, "acceptEdits", Rules(allow=("Edit",)))
    assert (verdict.decision, verdict.rule) == ("ask", "")


def test_other_agents_memory_is_protected_and_the_own_is_not(place: Place, tmp_path: Path) -> None:
    memfs = tmp_path / "letta" / "memfs" / "org-1"
    mine, other = memfs / "agent-1" / "memory", memfs / "agent-2" / "memory"
    place.workspace = Workspace(place.project, (place.project, mine), tmp_path / "o", memory=mine)
    assert place.judge("Write", "$MEMORY_DIR/notes.md", "acceptEdits").decision == "allow"
    assert place.judge("Write", other / "notes.md", "bypassPermissions").decision == "deny"


def test_deny_beats_ask_beats_allow_in_every_mode(place: Place) -> None:
    rules = Rules(allow=("Edit(**)",), ask=("Edit(src/**)",), deny=("Edit(src/secret/**)", "Read(.env)"))
    modes: tuple[Mode, ...] = ("default", "acceptEdits", "bypassPermissions")
    for mode in modes:
        judged = [
            place.judge("Write", path, mode, rules).decision for path in ("a", "src/a", "src/secret/a/b")
        ]
        assert judged == ["allow", "ask", "deny"]
    assert place.judge("Read", "deep/.env", rules=rules).decision == "deny"
    bash = Bash(place.workspace, ShellPool(place.workspace))
    policy = Policy("default", rules, place.workspace)
    for command in ("cat .env", "head -1 deep/.env", "cat < .env"):
        assert policy.judge(bash, bash.arguments(command=command)).decision == "deny"


def test_own_tools_and_memory(place: Place) -> None:
    assert place.judge("TodoWrite", "", "plan").decision == "allow"
    assert place.judge("memory", "").decision == "allow"
    assert place.judge("memory", "", "plan").decision == "deny"
    assert place.judge("memory", "", rules=Rules(deny=("memory",))).decision == "deny"
    assert place.judge("mcp__x__y", "").decision == "ask"
    assert place.judge("mcp__x__y", "", rules=Rules(allow=("mcp__x",))).decision == "allow"
    assert place.judge("mcp__xx__y", "", rules=Rules(allow=("mcp__x",))).decision == "ask"


def test_redirections_are_writes(place: Place) -> None:
    bash = Bash(place.workspace, ShellPool(place.workspace))

    def judged(command: str, mode: Mode = "acceptEdits") -> str:
        return Policy(mode, Rules(), place.workspace).judge(bash, bash.arguments(command=command)).decision

    assert judged("echo x > src/a") == "allow"
    assert judged("echo x > src/a", "default") == "ask"
    assert judged("echo x > src/a", "plan") == "deny"
    for command in (
        "echo x > ../a",
        "cd .. && echo x > a",
        "echo x > .git/config",
        "echo x > $X",
        "echo x > ~/.bashrc",
    ):
        assert judged(command) == "ask", command


def test_grants_last_for_the_session(place: Place) -> None:
    policy = Policy("default", Rules(), place.workspace)
    write = tool("Write", "edit")
    policy.grant("Edit(src/**)")
    assert policy.judge(write, PathArguments(file_path="src/a/b")).decision == "allow"
    assert policy.judge(write, PathArguments(file_path="a")).decision == "ask"


@pytest.mark.parametrize(
    "text", ["", "Bash(", "Bash)", "Bash()", "Bash( )", "(x)", "a b", "Bash(it's)", "Edit(x) y"]
)
def test_bad_rules_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        Rule.parse(text)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**", "srcs/a", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("*.py", "deep/down/x.py", True),
        ("src/", "src/a", True),
        ("./src/**", "src/a", True),
        ("/src/**", "src/a", True),
        ("a[1].txt", "a1.txt", False),
        ("**/test_*", "a/b/test_x", True),
        ("文档/**", "文档/a", True),
    ],
)
def test_path_patterns(place: Place, pattern: str, path: str, matches: bool) -> None:
    verdict = place.judge("Write", path, rules=Rules(allow=(f"Edit({pattern})",)))
    assert verdict.decision == ("allow" if matches else "ask")
