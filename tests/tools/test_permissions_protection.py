"""This program's own files, secrets and files that others obey: in every mode, through every tool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.core.messages import Text
from letta_code.tools.base import Call, Tool, Workspace
from letta_code.tools.edit import Edit
from letta_code.tools.files import Read, Write
from letta_code.tools.permissions.policy import Mode, Policy, Verdict
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.search import LS, Glob, Grep
from letta_code.tools.seen import SeenFiles
from letta_code.tools.shell import Bash, ShellPool

MODES: tuple[Mode, ...] = ("default", "acceptEdits", "plan", "bypassPermissions")
ASKING: tuple[Mode, ...] = ("default", "acceptEdits", "plan")
EVERYTHING = Rules(allow=("Read", "Edit", "Bash", "Read(//**)", "Edit(//**)", "Read(~/**)"))


class Place:
    """A project below a home, with two agents of this program in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = self.home / "project"
        self.letta = folder / "letta"
        agents = self.letta / "memfs" / "org-1"
        self.mine, self.other = agents / "agent-1", agents / "agent-2"
        for each in (self.mine, self.other):
            (each / "memory").mkdir(parents=True)
            (each / "memory" / "note.md").write_text("needle of memory")
            (each / "repo.git").mkdir()
            (each / "memory" / ".git").write_text("gitdir: ../repo.git\n")
        for name in (
            "config/settings.json",
            "data/conversations/c.jsonl",
            "cache/prompts/x",
            "log/letta.log",
        ):
            self.put(self.letta / name, "needle of ours")
        self.put(self.home / ".letta" / "settings.json", "needle of Letta Code")
        self.put(self.letta / "config" / "skills" / "a" / "SKILL.md", "a skill")
        self.put(self.project / "src" / "a.py", "needle in code")
        self.workspace = Workspace(
            self.project,
            (self.project, self.mine / "memory"),
            self.letta / "cache" / "overflow" / "conv-1",
            memory=self.mine / "memory",
        )
        self.put(self.workspace.overflow / "Bash-1.txt", "cut")

    @staticmethod
    def put(path: Path, text: str = "x") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def policy(self, mode: Mode = "default", rules: Rules | None = None) -> Policy:
        return Policy(mode, rules or Rules(), self.workspace)

    def tool(self, name: str, policy: Policy) -> Tool[Any]:
        made: dict[str, Tool[Any]] = {
            "Read": Read(self.workspace, SeenFiles()),
            "Write": Write(self.workspace, SeenFiles()),
            "Edit": Edit(self.workspace, SeenFiles()),
            "LS": LS(self.workspace),
            "Grep": Grep(self.workspace, policy.left_out),
            "Glob": Glob(self.workspace, policy.left_out),
            "Bash": Bash(self.workspace, ShellPool(self.workspace)),
        }
        return made[name]

    def judge(self, name: str, mode: Mode = "default", rules: Rules | None = None, **given: Any) -> Verdict:
        policy = self.policy(mode, rules)
        tool = self.tool(name, policy)
        return policy.judge(tool, tool.arguments.model_validate(given))

    def bash(self, command: str, mode: Mode = "default", rules: Rules | None = None) -> Verdict:
        return self.judge("Bash", mode, rules, command=command)

    async def run(self, name: str, mode: Mode = "default", rules: Rules | None = None, **given: str) -> str:
        policy = self.policy(mode, rules)
        tool = self.tool(name, policy)
        output = await tool.run(tool.arguments.model_validate(given), Call("c"))
        return "".join(block.text for block in output.content if isinstance(block, Text))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("LETTA_HOME", str(tmp_path.resolve() / "letta"))
    monkeypatch.setenv("HOME", str(tmp_path.resolve() / "home"))
    return Place(tmp_path.resolve())


# This program's own files -------------------------------------------------------------------------


def closed_files(place: Place) -> list[Path]:
    return [
        place.other / "memory" / "note.md",
        place.other / "repo.git" / "HEAD",
        place.mine / "sync.json",
        place.letta / "config" / "settings.json",
        place.letta / "data" / "conversations" / "c.jsonl",
        place.letta / "cache" / "prompts" / "x",
        place.letta / "cache" / "overflow" / "conv-2" / "x",
        place.letta / "log" / "letta.log",
        place.home / ".letta" / "settings.json",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_own_files_are_denied_to_file_tools_in_every_mode(place: Place, mode: Mode) -> None:
    for path in closed_files(place):
        for name, words in (
            ("Read", {"file_path": str(path)}),
            ("Write", {"file_path": str(path), "content": "x"}),
            ("Edit", {"file_path": str(path), "old_string": "a", "new_string": "b"}),
            ("LS", {"path": str(path.parent)}),
            ("Grep", {"pattern": "x", "path": str(path)}),
            ("Glob", {"pattern": "*", "path": str(path)}),
            ("Glob", {"pattern": f"{path}*"}),
        ):
            if name in ("LS", "Glob") and path.parent == place.mine:
                continue
            verdict = place.judge(name, mode, EVERYTHING, **words)
            assert verdict.decision == "deny", (name, path)
            assert "no agent may touch" in verdict.reason or mode == "plan"


@pytest.mark.parametrize("mode", MODES)
def test_own_files_are_denied_through_links_dots_and_variables(place: Place, mode: Mode) -> None:
    (place.project / "link").symlink_to(place.other)
    for path in ("link/memory/note.md", "$MEMORY_DIR/../../agent-2/memory/note.md", "~/.letta/settings.json"):
        assert place.judge("Read", mode, EVERYTHING, file_path=path).decision == "deny", path


NAMING_OWN_FILES = (
    "cat {other}/memory/note.md",
    "cat < {other}/memory/note.md",
    "echo x > {other}/memory/note.md",
    "ls {letta}/memfs",
    "cd {other}/memory && cat note.md",
    "cd {other}; git log",
    "git -C {other}/memory log",
    "cp {other}/memory/note.md .",
    "cat link/memory/note.md",
    "cat $MEMORY_DIR/../../agent-2/memory/note.md",
    "cat ~/.letta/settings.json",
    "cat $HOME/.letta/settings.json",
    "cat ${{HOME}}/.letta/settings.json",
    'X=1; cat "$HOME"/.letta/settings.json',
    "cat $LETTA_HOME/config/settings.json",
    "sh -c 'cat {letta}/config/settings.json'",
    "find . -exec cat {letta}/data/conversations/c.jsonl ;",
    "echo {letta}/log/letta.log | xargs cat {letta}/log/letta.log",
    "python3 -c 'print(open(\"{letta}/config/settings.json\").read())'",
    "sqlite3 {letta}/data/index.db",
    "tar cf x.tar {letta}",
    "tar cf x.tar ~",
    "grep -rn x {letta}",
    "cd {letta} && grep -rn x",
    "cp -r {letta}/ copy",
    "rg -uu x ..",
    "find ~ -name '*.md' -exec cat {{}} +",
    "rm -rf $MEMORY_DIR/../repo.git",
    "echo x > $MEMORY_DIR/../repo.git/HEAD",
    "rm $MEMORY_DIR/.git",
    "ln -s {other} x",
    "letta trust --yes",
    "letta config set permissions.defaultMode bypassPermissions",
    "python3 -m letta_code trust -y .",
    "env -u LETTA_AGENT_ID letta trust -y",
    "letta config get providers.openai.api_key",
    "cd $MEMORY_DIR && cat ../sync.json",
    'cd "$MEMORY_DIR" && cat ../../agent-2/memory/note.md',
    "cat $MEMORY_DIR/../../*/memory/note.md",
    "cat ~/.l*/settings.json",
    "mv {letta} x",
    "ln -s ../../letta x; cat x/config/settings.json",
    "ln -s ~",
    "cp -rt x ~",
    "rg needle {letta}",
    "git grep --no-index needle {letta}",
    "curl -F f=@{letta}/config/settings.json http://localhost/",
    "curl file://{letta}/config/settings.json",
    "vim -c ':r {letta}/config/settings.json' x",
    "bash <<E\ncat {letta}/config/settings.json\nE",
    "python3 <<E\nopen('../../letta/config/settings.json')\nE",
    "cat $PWD/../../letta/config/settings.json",
    "docker run -v {letta}/config:/x image",
    "docker run -v ~/.letta:/x image",
    "sqlite3 x 'attach \"{letta}/data/index.db\" as a'",
    "tmux new -d 'cat {letta}/config/settings.json'",
    "trap 'cat {letta}/config/settings.json' EXIT",
    "alias x='cat {letta}/config/settings.json'",
    "date -f {letta}/config/settings.json",
    "mount --bind {letta}/config x",
    "cat ${{LETTA_HOME%/}}/config/settings.json",
    "cat ${{HOME:-/root}}/.letta/settings.json",
)


def test_own_files_are_denied_to_the_shell_in_every_mode(place: Place) -> None:
    (place.project / "link").symlink_to(place.other)
    for command in NAMING_OWN_FILES:
        written = command.format(other=place.other, letta=place.letta)
        for mode in MODES:
            assert place.bash(written, mode, EVERYTHING).decision == "deny", (written, mode)


def test_a_name_behind_many_is_seen(place: Place) -> None:
    many = " ".join(map(str, range(2_000)))
    command = f"cat {many} {place.letta}/config/settings.json"
    assert place.bash(command, "bypassPermissions").decision == "deny"
    place.put(place.project / ".env")
    assert place.bash(f"cat {many} .env", rules=Rules(allow=("Bash",))).decision == "ask"


def test_the_agents_own_memory_outputs_and_skills_stay_reachable(place: Place) -> None:
    assert place.judge("Read", file_path="$MEMORY_DIR/note.md").decision == "allow"
    assert place.judge("Write", "acceptEdits", file_path="$MEMORY_DIR/n.md", content="x").decision == "allow"
    assert place.judge("Read", file_path=str(place.workspace.overflow / "Bash-1.txt")).decision == "allow"
    assert (
        place.judge(
            "Write", "bypassPermissions", file_path=str(place.workspace.overflow / "x"), content="x"
        ).decision
        == "deny"
    )
    skill = place.letta / "config" / "skills" / "a" / "SKILL.md"
    granted = Rules(allow=(f"Read(/{place.letta}/config/skills/**)",))
    assert place.judge("Read", rules=granted, file_path=str(skill)).decision == "allow"
    edit = place.judge(
        "Edit", "acceptEdits", EVERYTHING, file_path=str(skill), old_string="a", new_string="b"
    )
    assert edit.decision == "ask"
    for command in ("cd $MEMORY_DIR && git log", "cat $MEMORY_DIR/note.md"):
        assert place.bash(command).decision == "allow", command
    for command in ("find ~ -name x", "ls -R ~", "rg x ~", "grep x ~/x", "mv a ~", "cp -r src ~"):
        assert place.bash(command, "bypassPermissions").decision == "allow", command
    for command in (
        "cd $MEMORY_DIR && git commit -qm x",
        "letta memory log",
        "letta doctor",
        "echo ~/.letta",
        "git commit -m 'what ~/.letta/settings.json means'",
    ):
        assert place.bash(command, "bypassPermissions").decision == "allow", command


@pytest.mark.parametrize("command", ["cat ~/project/li*", "ls ~/project/l*/", "echo ~/project/l?nk/*"])
def test_what_a_glob_below_the_home_folder_finds_is_judged(place: Place, command: str) -> None:
    assert place.bash(command).decision == "allow"
    (place.project / "link").symlink_to(place.home)
    place.put(place.home / "x.txt")
    assert place.bash(command).decision == "ask"


async def test_searches_above_leave_own_files_out_in_every_mode(place: Place) -> None:
    above = str(place.letta.parent)
    for mode in MODES:
        found = await place.run("Grep", mode, EVERYTHING, pattern="needle", path=above)
        assert "src/a.py" in found
        assert "agent-2" not in found
        assert "settings.json" not in found
        assert "of this program left out" in found
        assert "agent-1/memory/note.md" in found
        lines = await place.run(
            "Grep", mode, EVERYTHING, pattern="needle", path=above, output_mode="content", glob="**/*"
        )
        assert "needle of ours" not in lines
        counted = await place.run("Grep", mode, pattern="needle", path=above, output_mode="count")
        assert "letta.log" not in counted
        names = await place.run("Glob", mode, EVERYTHING, pattern="**/*", path=above)
        assert "agent-2" not in names
        assert "conversations" not in names


# Secrets ------------------------------------------------------------------------------------------

SECRETS = (
    *(".env", ".env.local", ".ENV", "prod.env", "server.pem", "tls.key", "id_rsa", ".ssh/id_ed25519"),
    *(".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", "x.p12", "x.pfx", "passwords.kdbx"),
    *(
        "service-account-prod.json",
        "secrets.yml",
        "secrets.json",
        "secrets.toml",
        "config/secrets.yaml",
        "deep/down/.env",
    ),
)
NO_SECRETS = (
    *(
        ".env.example",
        ".env.sample",
        ".env.template",
        "env.py",
        ".environment",
        "id_rsa.pub",
        "key.py",
        "monkey",
    ),
    *("secrets.py", "secrets/readme.md", "keys.md", "pem.txt"),
)


@pytest.mark.parametrize("mode", MODES)
def test_secrets_ask_to_be_read_and_written_except_in_bypass(place: Place, mode: Mode) -> None:
    wide = Rules(allow=("Read", "Edit", "Read(**)", "Edit(**)", "Read(deep/**)"))
    for name in SECRETS:
        for rules in (Rules(), wide):
            read = place.judge("Read", mode, rules, file_path=name)
            write = place.judge("Write", mode, rules, file_path=name, content="x")
            if mode == "bypassPermissions":
                assert (read.decision, write.decision) == ("allow", "allow")
                continue
            assert read.decision == "ask", name
            assert read.rule == f"Read(/{place.project / name})"
            assert write.decision == ("deny" if mode == "plan" else "ask"), name
    for name in NO_SECRETS:
        assert place.judge("Read", mode, file_path=name).decision == "allow", name


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("Read(.env)", ".env"),
        ("Read(.env)", "deep/.env"),
        ("Read(**/.env)", "deep/.env"),
        ("Read(*.pem)", "a/b.pem"),
        ("Read(config/secrets.yml)", "config/secrets.yml"),
    ],
)
def test_a_rule_that_names_the_secret_opens_it_and_no_other(place: Place, rule: str, name: str) -> None:
    rules = Rules(allow=(rule,))
    assert place.judge("Read", rules=rules, file_path=name).decision == "allow"
    assert place.judge("Read", rules=rules, file_path="other.key").decision == "ask"
    assert place.judge("Write", "acceptEdits", rules, file_path=name, content="x").decision == "ask"


def test_a_secret_behind_another_name_asks(place: Place) -> None:
    place.put(place.project / ".env")
    (place.project / "plain").symlink_to(".env")
    place.put(place.project / "values")
    (place.project / "a.key").symlink_to("values")
    assert place.judge("Read", file_path="plain").decision == "ask"
    assert place.judge("Read", file_path="a.key").decision == "ask"
    assert place.bash("cat plain").decision == "ask"


def test_secrets_of_the_home_folder_ask_although_a_rule_opens_home(place: Place) -> None:
    rules = Rules(allow=("Read(~/**)",))
    for name in (
        ".aws/credentials",
        ".kube/config",
        ".docker/config.json",
        ".config/gh/hosts.yml",
        ".gnupg/x",
    ):
        assert place.judge("Read", rules=rules, file_path=f"~/{name}").decision == "ask", name
        assert place.judge("Read", rules=Rules(allow=(f"Read(~/{name})",)), file_path=f"~/{name}").rule == ""
    assert place.judge("Read", rules=rules, file_path="~/notes.txt").decision == "allow"


@pytest.mark.parametrize(
    "command",
    [
        *("cat .env", "source .env", ". .env", "grep x .env", "head -1 .env", "cat < .env", "cp .env x"),
        *("x=.env; cat $x", "cat .e*", "cd src && cat ../.env", "sh -c 'cat .env'", "python3 x.py .env"),
        *(
            "docker run --env-file=.env x",
            "find . -name .env -exec cat {} +",
            "git add .env",
            "base64 tls.key",
        ),
        *(
            "git show :.env",
            "git cat-file -p HEAD:sub/.env",
            "git show main~2:./.env",
            "git diff -- gone.pem",
        ),
        *("git log -L1,2:.env", "git diff HEAD:.env a", "git diff -- ':(top).env'", "git blame .env"),
        *("echo A=1 >> .env", "tee .env", "diff .env .env.example", "env -i cat .env", "cat src/../.env"),
    ],
)
def test_commands_that_open_secrets_ask_although_the_command_is_allowed(place: Place, command: str) -> None:
    for name in (".env", "tls.key"):
        place.put(place.project / name)
    allowing = Rules(allow=("Bash",))
    for mode in ("default", "acceptEdits"):
        assert place.bash(command, mode, allowing).decision == "ask", command
    assert place.bash(command, "bypassPermissions").decision == "allow"
    exact = Rules(allow=(f"Bash({command})",))
    if "*" not in command and ">" not in command and "<" not in command:
        assert place.bash(command, rules=exact).decision == "allow"


@pytest.mark.parametrize(
    "command",
    [
        *("ls -la .env", "test -f .env && echo yes", "stat .env", "find . -name .env"),
        *("grep -n .env README.md", "grep --exclude=.env x README.md", "cat .env.example", "echo .env"),
        *("rg -g '!.env' x README.md", "du -h .env", "git check-ignore .env", "git ls-files .env"),
        *("git diff -- . ':!.env'", "git grep process.env", "git show HEAD:.env.example", "git log -S a:b"),
    ],
)
def test_commands_that_only_name_secrets_pass(place: Place, command: str) -> None:
    for name in (".env", ".env.example", "README.md"):
        place.put(place.project / name)
    assert place.bash(command).decision == "allow", place.bash(command)


async def test_grep_leaves_secrets_out_and_says_so(place: Place) -> None:
    place.put(place.project / ".env", "needle=1")
    place.put(place.project / "deep" / "b.pem", "needle")
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"output_mode": "content"},
        {"output_mode": "count"},
        {"glob": "*.pem"},
        {"path": "deep"},
    )
    for words in ways:
        for mode in ASKING:
            found = await place.run("Grep", mode, pattern="needle", **words)
            assert "left out because secrets are in" in found, words
            assert "needle=1" not in found
    assert ".env" in await place.run("Grep", "bypassPermissions", pattern="needle")
    opened = await place.run(
        "Grep", rules=Rules(allow=("Read(.env)",)), pattern="needle", output_mode="content"
    )
    assert "needle=1" in opened
    assert place.judge("Grep", pattern="needle", path=".env").decision == "ask"
    assert place.judge("Grep", pattern="needle", glob=".env").decision == "allow"
    assert "needle=1" not in await place.run("Grep", pattern="n", glob=".env", output_mode="content")
    assert ".env" in await place.run("Glob", pattern=".e*")


async def test_grep_leaves_out_what_a_rule_denies(place: Place) -> None:
    place.put(place.project / "private" / "x", "needle")
    rules = Rules(deny=("Read(private/**)",))
    for mode in MODES:
        found = await place.run("Grep", mode, rules, pattern="needle", output_mode="content")
        assert "private/x:" not in found
        assert "a rule denies reading it" in found


async def test_ignored_secrets_are_not_named_as_hidden_matches(place: Place) -> None:
    place.put(place.project / ".gitignore", ".env\n")
    place.put(place.project / ".env", "needle=1")
    found = await place.run("Grep", pattern="needle=")
    assert "No matches found" in found
    assert "ignore rules hide" not in found


# Files that others obey ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/pre-commit", ".git/config", "sub/.git/config", ".GIT/config", ".vscode/tasks.json"),
        *(".idea/workspace.xml", ".husky/pre-commit", ".envrc", ".mcp.json", ".pre-commit-config.yaml"),
        *("~/.bashrc", "~/.zshrc", "~/.gitconfig", "~/.ssh/config", "~/.config/git/config"),
        *("~/.config/autostart/x.desktop", "~/.config/systemd/user/x.service", ".letta/settings.json"),
        *(".letta/settings.local.json", "deep/.letta/settings.json"),
    ],
)
def test_files_that_others_obey_ask_although_edits_pass(place: Place, path: str) -> None:
    wide = Rules(allow=("Edit", "Edit(**)", "Edit(~/**)", "Edit(//**)"))
    for rules in (Rules(), wide):
        verdict = place.judge("Write", "acceptEdits", rules, file_path=path, content="x")
        assert verdict.decision == "ask", path
        assert verdict.remedy == "--permission-mode bypassPermissions" or "outside" in verdict.reason
    assert place.judge("Write", "bypassPermissions", file_path=path, content="x").decision == "allow"
    assert place.bash(f"echo x > {path}", "acceptEdits", Rules(allow=("Bash",))).decision == "ask"


def test_a_rule_that_names_such_a_file_opens_it_but_never_our_settings(place: Place) -> None:
    for name in (".vscode/tasks.json", ".git/hooks/pre-commit", ".envrc"):
        rules = Rules(allow=(f"Edit({name})",))
        assert place.judge("Write", rules=rules, file_path=name, content="x").decision == "allow", name
    rules = Rules(allow=("Edit(.letta/settings.json)",))
    assert place.judge("Write", rules=rules, file_path=".letta/settings.json", content="x").decision == "ask"
    assert place.judge("Write", "acceptEdits", file_path=".github/x.yml", content="x").decision == "allow"


# What "always" grants -----------------------------------------------------------------------------

NAMES = st.text(st.sampled_from("ab.*?[]() \\~$'\"\né中{}!,:"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(parts=st.lists(NAMES, min_size=1, max_size=3), other=st.lists(NAMES, min_size=1, max_size=3))
def test_a_path_rule_that_is_offered_covers_its_folder_and_nothing_else(
    place: Place, parts: list[str], other: list[str]
) -> None:
    outside = place.home.parent / "elsewhere"
    path, another = outside.joinpath("f", *parts), outside.joinpath(*other)
    contents: tuple[tuple[str, dict[str, Any]], ...] = (("Read", {}), ("Write", {"content": "x"}))
    for name, more in contents:
        offered = place.judge(name, file_path=str(path), **more).rule
        if not offered:
            continue
        rules = Rules(allow=(offered,))
        assert place.judge(name, rules=rules, file_path=str(path), **more).decision == "allow"
        inside = another.is_relative_to(path.parent)
        judged = place.judge(name, rules=rules, file_path=str(another), **more).decision
        assert judged == ("allow" if inside else "ask"), (offered, another)


@pytest.mark.parametrize(
    ("name", "path", "offered"),
    [
        ("Read", "/etc/hosts", "Read(//etc/**)"),
        ("LS", "/etc", "Read(//etc/**)"),
        ("Read", "/x", "Read(//x)"),
        ("LS", "/", ""),
        ("LS", "~", ""),
        ("Read", "~/.bashrc", "Read(/{home}/.bashrc)"),
        ("Read", "/a*/x", ""),
    ],
)
def test_what_is_offered_is_no_more_than_the_folder(place: Place, name: str, path: str, offered: str) -> None:
    words: dict[str, Any] = {"path" if name == "LS" else "file_path": path}
    assert place.judge(name, **words).rule == offered.format(home=place.home)


# Paths --------------------------------------------------------------------------------------------


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "src", "out", "up", "dangling", "loop", "new", "", "~"]), max_size=7
    )
)
def test_a24_no_spelling_of_a_path_lets_a_write_out_of_the_project(place: Place, parts: list[str]) -> None:
    for link, target in (("out", ".."), ("src/up", "../../.."), ("dangling", "../gone"), ("loop", "loop")):
        if not os.path.lexists(place.project / link):
            os.symlink(target, place.project / link)
    path = "/".join(parts) or "."
    verdict = place.judge("Write", "acceptEdits", EVERYTHING, file_path=path, content="x")
    if verdict.decision == "allow":
        (touched,) = verdict.paths
        assert touched == touched.resolve()
        assert not any(touched.is_relative_to(each) for each in (place.letta, place.home / ".letta"))
    narrow = place.judge("Write", "acceptEdits", file_path=path, content="x")
    if narrow.decision == "allow":
        (touched,) = narrow.paths
        assert touched.is_relative_to(place.project)
