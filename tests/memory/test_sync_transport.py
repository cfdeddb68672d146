"""How a remote is reached: every kind of address, bounded in time, with nothing secret in what is said."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.errors import MemoryRemoteError, UsageError
from letta_code.memory.git.remote import remote_url, set_remote, unset_remote
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.git.sync import SyncReport, sync
from letta_code.memory.history import Author
from letta_code.memory.transport import Transport, checked_url, holds_secret, mask
from tests.memory.conftest import AGENT, Git

FAKE_SSH = """#!/bin/sh
# The host and what git wants to run there; run here.
echo "$@" >> "$0.log"
while [ $# -gt 1 ]; do shift; done
exec sh -c "$1"
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    folder = tmp_path / "with space.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    return folder


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    program = tmp_path / "own" / "ssh"  # by that name git knows which options it takes
    program.parent.mkdir()
    program.write_text(FAKE_SSH)
    program.chmod(0o700)
    return program


def synced(
    repository: MemoryRepository, url: str, more: Mapping[str, str] | None = None, seconds: float = 40
) -> SyncReport:
    set_remote(repository, url)
    base = {"PATH": os.environ["PATH"], "HOME": str(repository.git_dir.parent)}
    transport = Transport(repository.git_dir, url, base | dict(more or {}), seconds)
    return sync(repository, transport, Author("Ada", "a@example.org"))


def tip(bare: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "main"], cwd=bare, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_over_the_file_system(repository: MemoryRepository, bare: Path) -> None:
    assert synced(repository, str(bare)).sent == 1
    assert synced(repository, f"file://{bare}").outcome == "up-to-date"
    assert tip(bare) == repository.head()


@pytest.fixture
def daemon(bare: Path) -> Iterator[str]:
    """`git daemon` on loopback; its address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    process = subprocess.Popen(
        [
            "git",
            "daemon",
            "--verbose",
            f"--port={port}",
            "--listen=127.0.0.1",
            "--export-all",
            "--enable=receive-pack",
            f"--base-path={bare.parent}",
        ],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "Ready to rumble" in line:
            break
    yield f"git://127.0.0.1:{port}/{bare.name}"
    os.killpg(process.pid, signal.SIGKILL)
    process.stderr.close()
    process.wait()


def test_over_git_daemon(repository: MemoryRepository, bare: Path, daemon: str) -> None:
    assert synced(repository, daemon).sent == 1
    assert tip(bare) == repository.head()
    assert synced(repository, daemon).outcome == "up-to-date"


@pytest.mark.parametrize("url", ["ada@desk:{}", "desk:{}", "ssh://ada@desk:2222{}"])
@pytest.mark.parametrize("how", ["environment", "settings"])
def test_over_ssh_with_the_persons_own_command(
    repository: MemoryRepository, bare: Path, ssh: Path, tmp_path: Path, url: str, how: str
) -> None:
    plain = tmp_path / "shared.git"
    bare.rename(plain)
    if how == "settings":
        (tmp_path / ".gitconfig").write_text(f"[core]\n\tsshCommand = {ssh}\n")
        assert synced(repository, url.format(plain)).sent == 1
    else:
        assert synced(repository, url.format(plain), {"GIT_SSH_COMMAND": str(ssh)}).sent == 1
    assert tip(plain) == repository.head()
    assert "desk" in Path(f"{ssh}.log").read_text()


def test_ssh_asks_nobody(repository: MemoryRepository, ssh: Path, bare: Path, tmp_path: Path) -> None:
    plain = tmp_path / "shared.git"
    bare.rename(plain)
    synced(repository, f"desk:{plain}", {"PATH": f"{ssh.parent}:{os.environ['PATH']}"})
    assert "BatchMode=yes -o ConnectTimeout=15" in Path(f"{ssh}.log").read_text()


def test_a_remote_that_says_nothing_is_left_with_all_that_was_started(
    repository: MemoryRepository, tmp_path: Path
) -> None:
    silent = tmp_path / "silent.sh"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # The pipe is open for as long as one of the processes lives.
    silent.write_text(f"#!/bin/sh\nexec 9>{pipe}\ntrap '' TERM\nsleep 1000 & sleep 1000\n")
    silent.chmod(0o700)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    before = repository.head()
    with pytest.raises(MemoryRemoteError, match=r"did not answer within 1\.5 seconds") as failed:
        synced(repository, "desk:there.git", {"GIT_SSH_COMMAND": str(silent)}, 1.5)
    assert failed.value.exit_code == 75
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert repository.head() == before


def test_without_git_it_says_so(repository: MemoryRepository, bare: Path, tmp_path: Path) -> None:
    with pytest.raises(MemoryRemoteError, match="not installed"):
        synced(repository, str(bare), {"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("url", "words"),
    [("/no/where.git", "git init --bare"), ("https://ada:hunter22@127.0.0.1:1/x.git", "sync again")],
)
def test_e10_what_goes_wrong_is_said_without_secrets(
    repository: MemoryRepository, url: str, words: str
) -> None:
    with pytest.raises(MemoryRemoteError) as failed:
        synced(repository, url)
    said = f"{failed.value.message} {failed.value.hint}"
    assert words in said
    assert "hunter22" not in said
    assert "ada" not in said


def test_e10_helpers_of_the_person_are_not_called_for_folders(
    repository: MemoryRepository, bare: Path, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    (tmp_path / ".gitconfig").write_text(f'[credential]\n\thelper = "!touch {called}; sleep 100; #"\n')
    synced(repository, f"file://{bare}")
    assert not called.exists()
    with pytest.raises(MemoryRemoteError, match=r"https://\*\*\*@127"):
        synced(repository, "https://ada:hunter22@127.0.0.1:1/x.git")
    assert not called.exists()


def test_e12_inherited_variables_choose_no_other_repository(
    repository: MemoryRepository, bare: Path, tmp_path: Path
) -> None:
    other = tmp_path / "project"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    before = sorted(str(path) for path in other.rglob("*"))
    hook = {"GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": "x"}
    options = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "remote.origin.url", "GIT_CONFIG_VALUE_0": "/no"}
    synced(repository, str(bare), hook | options)
    assert tip(bare) == repository.head()
    assert sorted(str(path) for path in other.rglob("*")) == before


def test_no_hook_has_a_say(repository: MemoryRepository, bare: Path, tmp_path: Path) -> None:
    hooks = repository.git_dir / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-push", "reference-transaction", "post-merge"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\nexit 1\n")
        (hooks / name).chmod(0o700)
    synced(repository, str(bare))
    assert not (tmp_path / "ran").exists()


def test_what_the_other_side_refuses_is_told(repository: MemoryRepository, bare: Path, git: Git) -> None:
    (bare / "hooks/pre-receive").write_text("#!/bin/sh\necho only on Mondays >&2\nexit 1\n")
    (bare / "hooks/pre-receive").chmod(0o700)
    with pytest.raises(MemoryRemoteError, match=r"refused the push.*only on Mondays"):
        synced(repository, str(bare))
    project = repository.git_dir.parent / "project"
    subprocess.run(["git", "init", "-q", "-b", "main", str(project)], check=True)
    git(
        "push",
        "-q",
        str(project),
        "main:main",
        "--force",
        "--receive-pack=git -c receive.denyCurrentBranch=ignore receive-pack",
    )
    (repository.worktree / "new.md").write_text("x\n")
    repository.commit_drafts("New", AGENT)
    with pytest.raises(MemoryRemoteError, match="checked out") as failed:
        synced(repository, str(project))
    assert "git init --bare" in failed.value.hint


def test_the_address_is_where_plain_git_finds_it(repository: MemoryRepository, bare: Path, git: Git) -> None:
    assert remote_url(repository) is None
    set_remote(repository, "desk:old.git")
    set_remote(repository, str(bare))
    assert remote_url(repository) == str(bare)
    assert (repository.git_dir / "config").stat().st_mode & 0o777 == 0o600
    synced(repository, str(bare))
    (repository.worktree / "new.md").write_text("x\n")
    repository.commit_drafts("New", AGENT)
    assert "ahead 1" in git("status", "-sb")
    git("push", "-q")
    assert synced(repository, str(bare)).outcome == "up-to-date"
    unset_remote(repository)
    assert remote_url(repository) is None
    assert "refs/letta" not in git("for-each-ref")


@pytest.mark.parametrize(
    "url",
    [
        "-oProxyCommand=x",
        "ext::sh -c touch% x",
        "fd::17",
        "http://host/x.git",
        "ftp://host/x",
        "ssh://-oProxyCommand=x/y",
        "-host:path",
        "a\nb",
        "",
        " /x",
        "https://ada:secret@host/x.git",
        "https://ghp_0123456789012345678901234567890123456@host/x.git",
        "ssh://ada:secret@host/x.git",
    ],
)
def test_addresses_that_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        checked_url(url, tmp_path)
    assert "secret" not in refused.value.message
    assert "0123456789" not in refused.value.message


def test_addresses_that_are_taken(tmp_path: Path) -> None:
    for url in (
        "ssh://git@host:22/x.git",
        "git@host:x.git",
        "host:/x/y",
        "[::1]:x",
        "https://ada@host/x.git",
        "git://h/x",
        "file:///x",
    ):
        assert checked_url(url, tmp_path) == url
    assert checked_url("../shared.git", tmp_path / "project") == str(tmp_path / "shared.git")
    assert checked_url("https://a:secret@h/x", tmp_path, allow_secret=True) == "https://a:secret@h/x"


_WORD = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-._~%!$&*+=,;:@", min_size=8, max_size=30)


@given(_WORD, st.sampled_from(["fatal: unable to access '{}/': no", "{}", "two {} and {}", "x {}?t=1 y"]))
def test_e10_no_password_survives_masking(password: str, sentence: str) -> None:
    password = f"Q{password}Z"
    url = f"https://ada:{password}@example.org/x.git"
    said = mask(sentence.format(url, url), url)
    assert password not in said
    assert "example.org" in said
    assert password not in mask(f"remote: {password} is not valid", url)
    assert holds_secret(url)


def test_what_an_interrupted_sync_started_ends_with_it(repository: MemoryRepository, tmp_path: Path) -> None:
    silent, pipe, alive = tmp_path / "silent.sh", tmp_path / "pipe", tmp_path / "alive"
    os.mkfifo(pipe)
    os.mkfifo(alive)
    silent.write_text(f"#!/bin/sh\nexec 9>{alive}\necho started > {pipe}\nsleep 1000\n")
    silent.chmod(0o700)
    set_remote(repository, "desk:x.git")
    code = (
        "import os; from pathlib import Path; from letta_code.memory.transport import Transport\n"
        f"Transport(Path({str(repository.git_dir)!r}), 'desk:x.git', os.environ).heads()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "GIT_SSH_COMMAND": str(silent)},
        stderr=subprocess.DEVNULL,
    )
    reader = os.open(alive, os.O_RDONLY)
    assert pipe.read_text() == "started\n"
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert os.read(reader, 1) == b""
    os.close(reader)
