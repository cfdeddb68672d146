"""What shell commands may read without a question: files outside the project ask, wherever a link, a
folder change or a variable hides them. Written by hand for this project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from letta_code.tools.base import Workspace
from letta_code.tools.permissions.policy import Mode, Policy, Verdict
from letta_code.tools.permissions.rules import Rules
from letta_code.tools.shell import Bash, ShellPool

INSIDE = r"""
git log
git log --oneline -5
ls
grep -r foo src
grep -rn "/api/users" src
grep -rn --include=*.{ts,tsx} foo src
cd src && ls
cd src && grep -rn foo . | head -5
cat a.py
cat src/*.py
wc -l *.py
cut -d / -f 1 a.py
sort -t / -k 2 a.py
git log --author=x --since=yesterday
cat /dev/null
cat a.py - < /dev/null
/usr/bin/grep x a.py
cat "$MEMORY_DIR/system/persona.md"
ls $MEMORY_DIR
git -C "$MEMORY_DIR" log
sed -n 1,5p "$MEMORY_DIR/system/persona.md"
find $MEMORY_DIR -name '*.md'
[ -f .env ] && echo there
[[ -s .env ]]
for f in a.py src/*.py; do echo "== $f"; head -3 "$f"; done
d=src; ls "$d/deep"
git ls-files | xargs wc -l
find . -name '*.py' -exec grep -l x {} +
[ -f a.py ] && cat a.py
echo /etc/passwd
df -h /
which /bin/ls
git show HEAD:src/x
rg -n '/etc/passwd' src
rg --files src
jq '.a/.b' a.json
find . -path '*/node_modules/*' -prune -o -print
grep -A 3 -rn x src
git diff HEAD~1 -- src
test -f a.py && cat a.py
cd . && ls
git ls-files | grep -v test | head -5 | xargs wc -l
grep -rl foo src | xargs wc -l
ps -ef
ps aux
sed -n 1,5p a.py
git log 2>/dev/null | head -3
"""

OUTSIDE = r"""
cat /etc/passwd
cat ~/.ssh/id_rsa
cat ../x
ls ..
ls /
cd / && cat etc/passwd
cd /; cat etc/passwd
(cd / && cat etc/passwd)
cd && cat .ssh/id
cd - && ls
cd ~ && ls
cd "$HOME" && ls
cat $HOME/.bashrc
cat "$HOME/.bashrc"
cat ${HOME}/.bashrc
cat < /etc/passwd
cat < $HOME/x
grep -f /etc/passwd a.py
grep -f/etc/passwd a.py
grep --file=/etc/passwd a.py
grep --fil /etc/passwd a.py
grep --fil=a.py /etc/passwd
grep -r $UNSET src
grep --fixed-strings x /etc/passwd
grep -hm 1 x /etc/passwd
grep -rnf/etc/passwd a.py
grep -e x /etc/passwd
grep -ne x /etc/passwd
grep --regexp=x /etc/passwd
grep --reg x /etc/passwd
grep -r x /etc
grep x a.py /etc/passwd
grep -R x src
rg -L x
rg --files /etc
rg --files link
rg x /etc
rg -f/etc/passwd
find -L . -name x
find / -name x
find . -exec cat /etc/passwd {} +
find . -exec cat {}/../../etc/passwd +
find link/ -name f
cat link/f
cat lf
cat '!lf'
cat \!lf
cat l*
cat l?nk/f
cat {lf,a.py}
cat {/etc/passwd,a}
cat /etc/pass{wd,x}
cat [l]f
cat .*/x
x=/etc/passwd; cat $x
x=/etc; y=$x/passwd; cat "$y"
x=lf; cat $x
for f in /etc/passwd; do cat "$f"; done
for f in /etc/*; do cat "$f"; done
x=..; cat $x/f
x=.; y=.; cat $x$y/f
cat $(echo /etc/passwd)
cat `echo /etc/passwd`
cat "$(echo /etc/passwd)"
cat $'/etc/passwd'
cat $'\x2fetc/passwd'
cat "/e"'tc'/passwd
cat \/etc/passwd
cat ~root/.x
cat ~+/../x
git -C / log
git -C .. log
git -C "$MEMORY_DIR/.." log
git -C "$x" log
x=..; git -C $x log
git diff --no-index /etc/passwd a.py
git log -- ../x
head -c 10 /etc/passwd
head -n5 /etc/passwd
[ -f /etc/passwd ]
[[ -f ~/.ssh/id ]]
test -f /etc/passwd
test -f $HOME/x
wc --files0-from=a.py
file -f a.py
sh -c 'cat /etc/passwd'
sh -c 'cat $0' /etc/passwd
timeout 5 cat /etc/passwd
env LC_ALL=C cat /etc/passwd
echo /etc/passwd | xargs cat
cat a.py | xargs cat
xargs cat < a.py
printf '%s' a | xargs -I{} cat /etc/{}
diff a.py /etc/passwd
jq . /etc/x.json
jq -f /etc/x a.json
jq -n '$ENV'
jq -n env
env
printenv
printenv ANTHROPIC_API_KEY
jq -n 'import "/etc/x" as $x; $x'
cd link && ls
cd src/deep/../../.. && ls
pushd /; ls
sort /etc/passwd
sort -k 1 /etc/passwd
cut -d: -f1 /etc/passwd
tail -n 1 /etc/passwd
paste a.py /etc/passwd
stat /etc/passwd
readlink -f /etc/passwd
cat /proc/self/environ
cat ''/etc/passwd
cat -- /etc/passwd
grep -- x /etc/passwd
cat a.py/../../x
p=-f/etc/passwd; grep $p a.py
grep $(echo -f/etc/passwd) a.py
cat <<EOF $(cat /etc/passwd)
f() { cat "$1"; }; f /etc/passwd
cat 2>&1 /etc/passwd
cat >/dev/null /etc/passwd
ps eww
ps auxe
git remote show origin
xargs -a /etc/passwd echo
read x < /etc/passwd
IFS=: cat /etc/passwd
cat /dev/../etc/passwd
cat /dev/fd/../../etc/passwd
cat /dev/tcp/1.2.3.4/80
cat < /dev/tcp/1.2.3.4/80
sort -t / /etc/passwd
cut -d / /etc/passwd
od -A x /etc/passwd
column -t /etc/passwd
nl -b a /etc/passwd
tr a b < /etc/passwd
date -r /etc/passwd
date -f /etc/passwd
basename $(cat /etc/passwd)
echo $(</etc/passwd)
echo "$(< /etc/passwd)"
mapfile -t x < /etc/passwd
cat<lf
diff <(cat /etc/passwd) a.py
git grep --no-index x /etc
git grep -f /etc/passwd
git blame --contents /etc/passwd a.py
git blame --contents=/etc/passwd a.py
git log --output=f
git -c core.pager=touch log
find . -fprintf f x
find . -ok cat {} ;
find . -execdir cat link ;
tar -tf x --to-command=touch
awk 'BEGIN{system("touch p")}'
column -t -s, -o /etc/x lf
git branch >/dev/null new
sort a.py 2>&1 -o p
ls >/dev/null; cat <<EOF /etc/passwd
find . -printf '/etc/passwd' | xargs cat
find . | grep -o '/etc.*' | xargs cat
head a.py | xargs cat
xargs cat <<< /etc/passwd
git ls-files | xargs cat; echo /etc/passwd | xargs cat
jq . 2>/dev/null /etc/x.json
(ls) >f x
/usr/bin/xargs cat < a.py
"""


class Place:
    def __init__(self, folder: Path) -> None:
        project, outside, memory = folder / "p", folder / "out", folder / "memory"
        for each in (project / "src" / "deep", project / "src" / "secret", outside, memory):
            each.mkdir(parents=True)
        for file in (outside / "f", project / "a.py", project / ".env", project / "src" / "secret" / "k"):
            file.write_text("x")
        (project / "link").symlink_to(outside)
        for name in ("lf", "!lf"):
            (project / name).symlink_to(outside / "f")
        (project / "src" / "dl").symlink_to("deep")
        (project / "loop").symlink_to("loop")
        self.workspace = Workspace(project, (project, memory), folder / "overflow", memory=memory)

    def judge(self, command: str, mode: Mode = "default", rules: Rules | None = None) -> Verdict:
        tool = Bash(self.workspace, ShellPool(self.workspace))
        return Policy(mode, rules or Rules(), self.workspace).judge(tool, tool.arguments(command=command))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def lines(text: str) -> list[str]:
    return text.strip("\n").split("\n")


@pytest.mark.parametrize("command", lines(INSIDE))
def test_reading_in_the_project_passes(place: Place, command: str) -> None:
    assert place.judge(command).decision == "allow", place.judge(command)


@pytest.mark.parametrize("command", lines(OUTSIDE))
def test_reading_elsewhere_or_unknown_asks(place: Place, command: str) -> None:
    assert place.judge(command).decision == "ask"


@pytest.mark.parametrize(
    "command",
    [
        *("cat .env", "cat < .env", "cd src && cat secret/k", "x=.env; cat $x", "cat src/*/k", "cat .e*"),
        *(
            "grep --file=.env a",
            "grep -f.env a",
            "cat link/../p/.env",
            "python x.py .env",
            "cat >/dev/null .env",
        ),
        *("git -C src diff --no-index secret/k x", "python x.py $PWD/.env", "x -v $PWD/src/secret:/x"),
    ],
)
def test_denied_reads_are_denied_in_every_mode(place: Place, command: str) -> None:
    rules = Rules(allow=("Bash",), deny=("Read(src/secret/**)", "Read(.env)"))
    assert place.judge(command, "bypassPermissions", rules).decision == "deny"
    assert place.judge(command, "default", rules).decision == "deny"


def test_a_denied_file_below_a_folder_outweighs_the_questions_before_it(place: Place) -> None:
    outside = place.workspace.project.parent / "out"
    for name in ("a/x.key", "b/f", "z/f"):
        (outside / name).parent.mkdir()
        (outside / name).write_text("x")
    for command in ("grep -r x ../out", "find ../out -exec cat {} +", "diff -r ../out src"):
        assert place.judge(command).decision == "ask", command
        denying = Rules(deny=(f"Read(/{outside}/z/**)",))
        assert place.judge(command, rules=denying).decision == "deny", command


def test_quoted_names_that_look_like_home_or_memory_are_judged_as_they_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = place.workspace.project
    monkeypatch.setenv("HOME", str(project))  # what `~` means lies in the project
    (project / "f").write_text("x")
    for name, commands in (
        ("$MEMORY_DIR", ("cat '{}/f'", "cat \\{}/f", "cd '{}' && cat f", "cat < '{}/f'", "grep -r x '{}'")),
        ("~", ("cat '{}/f'", "cat \\{}/f", "cd '{}' && cat f", "x='{}/f'; cat \"$x\"")),
    ):
        assert place.judge(f"cat {name}/f").decision == "allow"
        (project / name).symlink_to(project.parent / "out")
        for command in (*commands, "echo x > '{}/f'"):
            assert place.judge(command.format(name), "acceptEdits").decision == "ask", command


@pytest.mark.parametrize(
    "command",
    ["git >/dev/null push", "git 2>&1 push x", "git <<EOF push\nx\nEOF", ">/dev/null git push"],
)
def test_words_behind_a_redirection_are_arguments(place: Place, command: str) -> None:
    rules = Rules(deny=("Bash(git push:*)",))
    assert place.judge(command, "bypassPermissions", rules).decision == "deny"
    assert place.judge(command.replace("push", "log")).decision == "allow"


def test_the_question_offers_the_folder_and_a_grant_covers_it(place: Place) -> None:
    (place.workspace.project.parent / "out" / "g").write_text("x")
    verdict = place.judge("cat ../out/f | head -3")
    assert verdict.rule == f"Read(/{place.workspace.project.parent}/out/**)"
    assert place.judge("cat ../out/g", rules=Rules(allow=(verdict.rule,))).decision == "allow"
    exact = place.judge("cat $HOME/x")
    assert place.judge("cat $HOME/x", rules=Rules(allow=(exact.rule,))).decision == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cat loop",
        "cat " + "x" * 5000,
        "cat " + "a/" * 5000,
        "cat " + " ".join(map(str, range(9000))),
        "env " * 5000 + "ls",
    ],
)
def test_odd_names_are_judged_without_an_error(place: Place, command: str) -> None:
    rules = Rules(deny=("Read(.env)",))
    assert place.judge(command, rules=rules).decision in ("allow", "ask")


def test_permissions_load_neither_the_parser_nor_argument_classes() -> None:
    code = (
        "import sys, letta_code.tools.permissions.policy; "
        "print([name for name in ('tree_sitter', 'tree_sitter_bash', 'pydantic') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
