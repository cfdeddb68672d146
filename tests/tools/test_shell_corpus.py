"""Commands of shell_corpus.yaml get the verdict that is written there: B13, B14, H02."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from letta_code.tools.base import Workspace
from letta_code.tools.permissions.policy import Mode, Policy
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.shell import Bash, ShellPool

CORPUS = Path(__file__).with_name("shell_corpus.yaml")


@dataclass(frozen=True, slots=True)
class Case:
    command: str
    rules: Rules
    group: str
    verdicts: dict[Mode, str]  # alternatives divided by a blank


def cases() -> list[Case]:
    data: dict[str, Any] = yaml.load(CORPUS.read_text("utf-8"), yaml.CSafeLoader)
    sets = {
        name: Rules(allow=tuple(rules.get("allow", ())), deny=tuple(rules.get("deny", ())))
        for name, rules in data["rules"].items()
    }
    found = []
    for group in data["groups"]:
        default = group["verdict"]
        assert group["origin"]
        verdicts: dict[Mode, str] = {
            "default": default,
            "plan": group.get("plan", {"ask": "ask deny"}.get(default, default)).replace(
                "any", "allow ask deny"
            ),
        }
        accepting: dict[Mode, str] = {"acceptEdits": group.get("acceptEdits", default)}
        if "bypass" in group:
            verdicts["bypassPermissions"] = group["bypass"]
        for command in group["commands"]:
            every = verdicts | accepting if ">" in command else verdicts  # elsewhere it is as by default
            found.append(Case(command, sets[group["rules"]], group["name"], every))
    return found


CASES = cases()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("corpus").resolve()
    project, outside = folder / "p", folder / "out"
    for each in ("src/secret", "x", ".git", "bare/objects", "bare/refs", "bare/sub"):
        (project / each).mkdir(parents=True)
    outside.mkdir()
    for name in (
        "a.py",
        "b.py",
        "b.txt",
        "README.md",
        "f.json",
        ".env",
        "src/x.py",
        "src/secret/k",
        "bare/HEAD",
    ):
        (project / name).write_text("x\n")
    (outside / "f").write_text("x\n")
    (project / "link").symlink_to(outside)
    (project / "lf").symlink_to(outside / "f")
    (project / "x" / "away").symlink_to(outside / "f")
    return Workspace(project, (project,), folder / "overflow")


@pytest.mark.parametrize("group", sorted({case.group for case in CASES}))
def test_b13_b14_h02_the_corpus(place: Workspace, group: str) -> None:
    tool = Bash(place, ShellPool(place))
    wrong = []
    policies: dict[tuple[Mode, int], Policy] = {}
    for case in CASES:
        if case.group != group:
            continue
        for mode, right in case.verdicts.items():
            key = (mode, id(case.rules))
            policy = policies.setdefault(key, policies.get(key) or Policy(mode, case.rules, place))
            verdict = policy.judge(tool, tool.arguments(command=case.command))
            if verdict.decision not in right.split():
                wrong.append(
                    f"{mode}: {case.command!r} is {verdict.decision} ({verdict.reason}), not {right}"
                )
    assert not wrong, "\n".join(wrong)


def test_the_corpus_is_large_and_has_no_command_twice() -> None:
    keys = [(case.command, case.rules, case.group) for case in CASES]
    commands = {case.command for case in CASES}
    assert len(keys) == len({(command, group) for command, _, group in keys})
    assert len(commands) >= 400
    assert sum(case.verdicts["default"] == "allow" for case in CASES) >= 150
