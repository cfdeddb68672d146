"""What passes unasked is run in the real bash, with programs that leave a mark where they would write: B13.

Commands are put together at random from pieces of shell code, quoting, wrappers and separators around a
write, and changed at random places. Whatever the policy allows must leave no mark and no file, and print
nothing from outside the project or of a secret variable. `pytest --hypothesis-seed=N` repeats a run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.tools.base import Workspace
from letta_code.tools.permissions.policy import Policy
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.shell import Bash, ShellPool

CANARY = "canary-of-a-secret"
REAL: tuple[str, ...] = (
    "bash",
    "sh",
    "cat",
    "ls",
    "head",
    "grep",
    "sort",
    "env",
    "xargs",
    "find",
    "timeout",
    "nice",
    "tr",
)
REAL += ("wc", "diff", "sed", "awk", "uniq", "cut", "tail", "tee", "cp", "stat", "basename")
MARKING = ("touch", "rm", "mkdir")
RULES = Rules(allow=("Bash(git log:*)", "Bash(echo:*)", "Bash(timeout:*)"))


class Place:
    """A project with links that lead out of it, and programs that leave marks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder / "mark"
        self.project = folder / "p"
        (self.project / "src").mkdir(parents=True)
        for outside in (folder / "f", folder / "out" / "f"):
            outside.parent.mkdir(exist_ok=True)
            outside.write_text(f"{CANARY}\n")
        (self.project / "a").write_text("alpha\nbeta\n")
        (self.project / "src" / "b.py").write_text("x\n")
        (self.project / "-v a[$(touch p)]").write_text("")
        (self.project / "link").symlink_to("../out")
        (self.project / "src" / "lf").symlink_to("../../out/f")
        programs = folder / "bin"
        programs.mkdir()
        for name in REAL:
            found = shutil.which(name)
            assert found
            (programs / name).symlink_to(found)
        for name in (*MARKING, "git"):
            script = "exit 0" if name == "git" else f'echo "$0 $*" >> {self.mark}'
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        self.environment = {"PATH": str(programs), "HOME": str(folder / "home"), "API_KEY": CANARY}
        self.workspace = Workspace(self.project, (self.project,), folder / "overflow")
        self.tool = Bash(self.workspace, ShellPool(self.workspace))
        self.policy = Policy("default", RULES, self.workspace)
        self.files = self.listing()

    def listing(self) -> list[str]:
        return sorted(os.path.join(base, *names) for base, *names in self._walk())

    def _walk(self) -> list[tuple[str, str]]:
        return [(base, name) for base, folders, files in os.walk(self.folder) for name in (*folders, *files)]

    def allows(self, command: str) -> bool:
        arguments = self.tool.arguments(command=command)
        return self.policy.judge(self.tool, arguments).decision == "allow"

    def harm(self, command: str) -> str:
        """What running `command` did; empty when nothing."""
        try:
            done = subprocess.run(
                ["/bin/bash", "-c", command],
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=20,
            )
        except subprocess.TimeoutExpired:
            return ""  # it waits, which changes nothing
        if self.mark.exists():
            text = self.mark.read_text()
            self.mark.unlink()
            return f"it ran {text!r}"
        if CANARY.encode() in done.stdout + done.stderr:
            return "it printed what is not to be read"
        if (now := self.listing()) != self.files:
            before, self.files = self.files, now
            return f"it changed {set(now) ^ set(before)}"
        return ""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("differential").resolve())


READING = (
    *("ls", "cat a", "echo a", "echo 'a b' \"c $x d\" $'e'", "git log --oneline | head", "sed -n '1,2p' a"),
    *("echo $(cat a)", 'echo "`cat a`" x', "cat <<EOF\nhello\nEOF\n", "cat <<'E' | head\nhi\nE\n"),
    *("if [ -f a ]; then cat a; fi", 'for i in a b; do echo "$i"; done', "ls | xargs cat", "x=a; cat $x"),
    *("case x in a) ls;; b) cat a;; esac", "diff <(ls) <(cat a)", "x=$(ls); echo ${x%a} $((1+2))"),
    *("cat a 2>&1 >/dev/null | head -1", "find . -name 'a' -exec cat {} +", "while false; do ls; done"),
    *("cat <<-EOF\n\thi $x\n\tEOF\n", "cd src && cat b.py && ls ..", "{ ls; cat a; } | sort", "(ls; cat a)"),
    *("[[ -f a && x == y ]] && ls", "echo a # comment\nls", "f() { ls; }; ls", "! ls || cat a", "time ls"),
    *('echo "${x:-a}" ${x:+b}', "timeout 5 cat a; env LC_ALL=C ls", "sh -c 'ls; cat a'", 'cat <<<"a $x"'),
    *('[ "$x" = a ] || ls', "grep -rn 'x' src", "awk '{print $1}' a", "sort -k1 a | uniq -c", "cat src/*"),
    *('while read -r l; do echo "$l"; done < a', "printf '%s' a", "cat {a,src/b.py}", "test -f a && ls"),
)
WRITES: tuple[str, ...] = (
    "touch p",
    "'touch' p",
    "t\\ouch p",
    "$'\\x74ouch' p",
    "rm a",
    "mkdir p",
    "echo x > p",
    "cp a p",
)
WRITES += (
    "touch = p",
    "sort -o p a",
    "tee p",
    "sed -i s/a/b/ a",
    "cat ../f",
    "cat link/f",
    "cat src/lf",
    "echo $API_KEY",
)
AROUND: tuple[Callable[[str], str], ...] = (
    *(lambda w, s=s: f"{s}{w}" for s in (";", "&&", "||", "|", "&", "\n", "\\\n", " ", "|&", "! ")),
    *(lambda w, s=s: f"$({w}){s}" for s in ("", " ", "#", "\n")),
    *(lambda w, s=s: f"{s}`{w}`" for s in ("", " ", '"')),
    lambda w: f'"$({w})"',
    lambda w: f'"$ $({w})"',
    lambda w: f"<({w})",
    lambda w: f"${{x:-$({w})}}",
    lambda w: f";({w})",
    lambda w: f";{{ {w}; }}",
    lambda w: f"; if {w}; then ls; fi",
    lambda w: f"; for i in a; do {w}; done",
    lambda w: f"; f() {{ {w}; }}; f",
    lambda w: f"; sh -c '{w}'",
    lambda w: f'; bash -c "{w}"',
    lambda w: f"; eval {w}",
    lambda w: f"; env {w}",
    lambda w: f"; timeout 5 {w}",
    lambda w: f" | xargs {w}",
    lambda w: f"; find . -exec {w} \\;",
    lambda w: f"; [[ -v 'a[$({w})]' ]]",
    lambda w: f"; x='{w}'; $x",
    *(lambda w, s=s: f"; [ a = b{s}{w} ]" for s in ("||", " && ", "|", " & ", "<", ">")),
    lambda w: f"; x='a[$({w})]'; echo $((x))",
    lambda w: f"; [[ 'a[$({w})]' -eq 1 ]]",
    lambda w: f"; x=([$({w})]=1)",
    lambda w: f"; x='$({w})'; echo ${{x@P}}",
    lambda w: f"; coproc {w}",
    lambda w: f"; case a in a) ls ;& b) {w};; esac",
    lambda w: f"; select x in a; do {w}; break; done < a",
    lambda w: f"; ls() {{ {w}; }}; ls",
    lambda w: f"; set -- '{w}'; $1",
    lambda w: f"; . <(echo '{w}')",
    lambda w: f"#{w}\n",
    lambda w: f"\n{w}\nEOF\n",
    lambda w: f"'{w}'",
    lambda w: f"\\$({w})",
)
NOISE = (
    *(
        ";",
        "&",
        "|",
        "\n",
        "(",
        ")",
        "{",
        "}",
        "$(",
        "`",
        '"',
        "'",
        "$'",
        "\\",
        "\\\n",
        "<(",
        "((",
        "))",
        "${",
    ),
    *("[", "]", "[[", "]]", ";;", "\t", "#", " #", "<", ">", ",", "..", "*", "!", "~", "=", " ", "$", "EOF"),
    *("<<EOF", "<<'EOF'\n", "\nEOF\n", "<<<", "\u00a0", "\u2003", "\u200b", "\v", "2>&1", ">/dev/null", "$x"),
    *(
        "-v",
        "-exec",
        "{}",
        "+",
        "xargs",
        "cd src",
        "cd ..",
        "../f",
        "link/f",
        "$API_KEY",
        "l*",
        "coproc",
        "time",
    ),
)


@st.composite
def composed(draw: st.DrawFn) -> str:
    """Reading commands with a write around or in them."""
    text = draw(st.sampled_from(READING))
    write = draw(st.sampled_from(AROUND))(draw(st.sampled_from(WRITES)))
    at = draw(st.one_of(st.just(len(text)), st.just(0), st.integers(0, len(text))))
    text = text[:at] + write + text[at:]
    if draw(st.booleans()):
        text += draw(st.sampled_from((";", "\n", " && ", " | "))) + draw(st.sampled_from(READING))
    return text


@st.composite
def disturbed(draw: st.DrawFn) -> str:
    """The same with characters put in or taken out."""
    text = draw(st.one_of(st.sampled_from(READING), composed()))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        if draw(st.booleans()):
            text = text[:at] + draw(st.sampled_from((*NOISE, *WRITES))) + text[at:]
        else:
            text = text[:at] + text[at + 1 :]
    return text


@given(command=st.one_of(composed(), disturbed(), disturbed()))
@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_b13_what_is_allowed_does_no_harm_in_bash(place: Place, command: str) -> None:
    if command.strip() and "\0" not in command and place.allows(command):
        assert place.harm(command) == ""


def test_the_marks_work(place: Place) -> None:
    assert place.allows("cat a")
    assert place.harm("cat a") == ""
    assert place.harm("cat a; touch p").startswith("it ran")
    assert place.harm("echo $API_KEY") == "it printed what is not to be read"
    assert place.harm("cat link/f") == "it printed what is not to be read"
    assert place.harm("echo x > p").startswith("it changed")
    (place.project / "p").unlink()
    place.files = place.listing()


@pytest.mark.parametrize("command", READING)
def test_the_reading_pieces_are_allowed_or_go_through_links(place: Place, command: str) -> None:
    follows = ("xargs cat", "src/*")  # a link in src leads out of the project
    assert place.allows(command) != any(part in command for part in follows)


HOSTILE: tuple[str, ...] = (
    "(",
    "$(",
    "{ ",
    "`",
    '"',
    "'",
    "<<E\n",
    "${x:-",
    "if ls; then ",
    "a|",
    "!",
    "((",
    "$((",
    "<(",
    "[[ ",
)
HOSTILE += (
    "case x in a) ",
    "{a,",
    "x=",
    "f() { ",
    "\\",
    "echo $x ",
    "cat <<E 2>&1 | ",
    "-exec ",
    "{a,b}",
    "env ",
    "cd a;",
)


@given(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3), st.integers(1, 20_000))
@settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_long_and_deep_input_is_judged_without_an_error(place: Place, parts: list[str], times: int) -> None:
    place.allows(("".join(parts) * times)[:60_000])
