"""What an answer "always" grants: the rule that was shown, and nothing that the words do not say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.errors import UsageError
from letta_code.tools.base import Workspace
from letta_code.tools.permissions.policy import Policy
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.shell import Bash, ShellPool


class Shell:
    """Judges commands with the rules that were granted."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder, (folder,), folder / "overflow")
        self.tool = Bash(self.workspace, ShellPool(self.workspace))

    def offered(self, command: str) -> str:
        return self._judge(Policy("default", Rules(), self.workspace), command)[1]

    def granted(self, rule: str, command: str) -> str:
        policy = Policy("default", Rules(), self.workspace)
        policy.grant(rule)
        return self._judge(policy, command)[0]

    def _judge(self, policy: Policy, command: str) -> tuple[str, str]:
        verdict = policy.judge(self.tool, self.tool.arguments(command=command))
        return verdict.decision, verdict.rule


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("LETTA_HOME", str(tmp_path / "letta"))
    return Shell(tmp_path / "p")


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git commit -m x", "Bash(git commit:*)"),
        ("npm test", "Bash(npm test:*)"),
        ("npm run build -- --watch", "Bash(npm run build:*)"),
        ("npm run test:unit", "Bash(npm run test:unit:*)"),
        ("uv run pytest", "Bash(uv run pytest)"),
        ("docker run alpine sh", "Bash(docker run alpine sh)"),
        ("kubectl exec pod -- sh", "Bash(kubectl exec pod -- sh)"),
        ("gh api /user", "Bash(gh api /user)"),
        ("git -c core.pager=x log", "Bash(git -c core.pager=x log)"),
        ("touch a && touch b", "Bash(touch a && touch b)"),
        ("touch a*", ""),
        ("rm -rf build", ""),
    ],
)
def test_always_offers_what_the_command_says(shell: Shell, command: str, rule: str) -> None:
    assert shell.offered(command) == rule


@pytest.mark.parametrize("command", ["git commit -m x", "npm run build", "touch a", "git push origin main"])
@pytest.mark.parametrize(
    "behind",
    ["; touch p", " && touch p", " | tee p", " $(touch p)", " > p", "\ntouch p", " & touch p", " `touch p`"],
)
def test_b13_a_grant_covers_nothing_behind_the_command(shell: Shell, command: str, behind: str) -> None:
    assert shell.granted(shell.offered(command), command) == "allow"
    assert shell.granted(shell.offered(command), command + behind) == "ask"


WORDS = st.lists(
    st.sampled_from(
        ["git", "npm", "push", "run", "x", "commit", "a b", "-m", "touch", "--force", "é", "'", ")"]
    ),
    min_size=1,
    max_size=5,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(asked=WORDS, other=WORDS)
def test_a_grant_covers_no_command_of_another_beginning(
    shell: Shell, asked: list[str], other: list[str]
) -> None:
    rule = shell.offered(" ".join(asked))
    if not rule:
        return
    beginning = rule[len("Bash(") : -1].removesuffix(":*")
    command = " ".join(other)
    if shell.granted(rule, command) == "allow":
        assert command.replace("'", "").startswith(beginning.replace("'", ""))


def test_a_session_may_not_change_to_bypass_unless_it_began_so(shell: Shell) -> None:
    policy = Policy("default", Rules(), shell.workspace)
    with pytest.raises(UsageError, match="at the start"):
        policy.set_mode("bypassPermissions")
    with pytest.raises(UsageError, match="no such"):
        policy.set_mode("yolo")
    policy.set_mode("plan")
    assert (policy.mode, policy.modes) == ("plan", ("default", "acceptEdits", "plan"))
    began = Policy("bypassPermissions", Rules(), shell.workspace)
    began.set_mode("default")
    began.set_mode("bypassPermissions")
    assert began.mode == "bypassPermissions"


def test_rules_say_where_they_come_from(shell: Shell) -> None:
    rules = Rules(("Edit(src/**)",), (), ("Bash(rm:*)",), {("deny", "Bash(rm:*)"): ".letta/settings.json"})
    policy = Policy("default", rules, shell.workspace)
    policy.grant("Bash(make x)")
    assert [(rule.decision, rule.text, rule.origin) for rule in policy.rules()] == [
        ("deny", "Bash(rm:*)", ".letta/settings.json"),
        ("allow", "Edit(src/**)", ""),
        ("allow", "Bash(make x)", "this session"),
    ]
