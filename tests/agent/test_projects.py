"""Which project a folder belongs to: injective, and found again."""

from __future__ import annotations

import os
import shutil
import subprocess
import unicodedata
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.agent.project_key import find_project, normalised_remote
from letta_code.agent.projects import Project, ProjectRegister, project_of
from letta_code.memory.rules import checked_path
from letta_code.memory.scope import overview_path, project_folder, scope_of
from letta_code.paths import Paths


def git(folder: Path, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    options = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *options, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path, remote: str = "") -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder


@pytest.fixture
def register(tmp_path: Path) -> ProjectRegister:
    return ProjectRegister(Paths.from_environment({"LETTA_HOME": str(tmp_path / "letta")}))


def slug(folder: Path, register: ProjectRegister) -> str:
    return project_of(folder, register).slug


def test_e25_different_folders_never_share_a_slug(tmp_path: Path, register: ProjectRegister) -> None:
    folders = [
        tmp_path / name for name in ("a-b", "a/b", "新聞", "暫存", "A-B", "a b", "a_b", "é", "e\u0301")
    ]
    for folder in folders:
        folder.mkdir(parents=True)
    slugs = [slug(folder, register) for folder in folders]
    assert len(set(slugs)) == len(folders)
    assert slugs == [slug(folder, register) for folder in folders]
    assert slugs[2].startswith("新聞-")
    assert all(unicodedata.is_normalized("NFC", name) and name == name.casefold() for name in slugs)


def test_e26_a_moved_or_renamed_project_is_found_again(tmp_path: Path, register: ProjectRegister) -> None:
    for kind, make in (("plain", Path.mkdir), ("git", repository)):
        folder = tmp_path / kind
        make(folder)
        before = slug(folder, register)
        moved = tmp_path / f"{kind} elsewhere"
        folder.rename(moved)
        assert slug(moved, register) == before
        make(folder)  # another project, where the first one was
        assert slug(folder, register) != before
        assert slug(moved, register) == before


def test_e26_a_project_is_entered_by_symlink_subfolder_and_worktree(
    tmp_path: Path, register: ProjectRegister
) -> None:
    project = repository(tmp_path / "project")
    (project / "src" / "deep").mkdir(parents=True)
    git(project, "commit", "-q", "--allow-empty", "-m", "one")
    git(project, "worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "link").symlink_to(project)
    entered = (project, project / "src" / "deep", tmp_path / "link", tmp_path / "tree", tmp_path / "link/src")
    assert len({slug(folder, register) for folder in entered}) == 1
    assert project_of(tmp_path / "tree", register).root == (tmp_path / "tree").resolve()


def test_e26_a_submodule_is_its_own_project(tmp_path: Path, register: ProjectRegister) -> None:
    inner = repository(tmp_path / "inner")
    git(inner, "commit", "-q", "--allow-empty", "-m", "one")
    outer = repository(tmp_path / "outer")
    git(outer, "submodule", "--quiet", "add", str(inner), "sub")
    assert slug(outer / "sub", register) != slug(outer, register)


def test_e26_a_project_that_gains_a_remote_keeps_its_slug_and_clones_share_it(
    tmp_path: Path, register: ProjectRegister
) -> None:
    project = repository(tmp_path / "project")
    before = slug(project, register)
    git(project, "remote", "add", "origin", "git@example.org:me/thing.git")
    assert slug(project, register) == before
    clone = repository(tmp_path / "clone", "https://tok:en@Example.org/me/thing")
    assert slug(clone, register) == before
    assert "tok" not in project_of(clone, register).remote


def test_e25_a_clone_that_was_given_another_remote_takes_its_memory_along(
    tmp_path: Path, register: ProjectRegister
) -> None:
    template = "https://example.org/template.git"
    first = repository(tmp_path / "first", template)
    before = slug(first, register)
    git(first, "remote", "set-url", "origin", "https://example.org/mine.git")
    assert slug(first, register) == before
    second = repository(tmp_path / "second", template)
    assert slug(second, register) != before


def test_a_folder_made_anew_without_a_remote_is_the_same_project(
    tmp_path: Path, register: ProjectRegister
) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    before = slug(folder, register)
    shutil.rmtree(folder)
    folder.mkdir()
    assert slug(folder, register) == before


def test_home_and_root_are_nobodys_project(tmp_path: Path, register: ProjectRegister) -> None:
    assert slug(Path("/"), register) == ""
    assert slug(Path("~").expanduser(), register) == ""
    home = repository(tmp_path / "home")  # dotfiles
    assert find_project(home, home) is None
    (home / "work").mkdir()
    found = find_project(home / "work", home)
    assert found is not None
    assert found.root == (home / "work").resolve()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1]", b'{"../x": {}}', b'{"a": {"remotes": 1, "folders": {}}}', b"\xff"]
)
def test_the_register_survives_damage(tmp_path: Path, register: ProjectRegister, damage: bytes) -> None:
    folder = repository(tmp_path / "project")
    before = slug(folder, register)
    file = tmp_path / "letta" / "data" / "known-projects.json"
    file.write_bytes(damage)
    assert slug(folder, register) == before
    assert file.with_suffix(".damaged").read_bytes() == damage
    folder.rename(tmp_path / "moved")
    assert slug(tmp_path / "moved", register) == before


def test_a_register_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "letta").write_text("a file in the way")
    register = ProjectRegister(Paths.from_environment({"LETTA_HOME": str(tmp_path / "letta")}))
    (tmp_path / "project").mkdir()
    assert slug(tmp_path / "project", register) == slug(tmp_path / "project", register) != ""


def _slug_in_process(folder: Path, home: Path) -> Project:
    return project_of(folder, ProjectRegister(Paths.from_environment({"LETTA_HOME": str(home)})))


def test_many_processes_register_at_once(tmp_path: Path, register: ProjectRegister) -> None:
    folders = [tmp_path / f"p{number}" for number in range(12)]
    for folder in folders:
        folder.mkdir()
    with ProcessPoolExecutor(4) as pool:
        found = list(pool.map(_slug_in_process, folders * 2, [tmp_path / "letta"] * 24))
    assert found[:12] == found[12:]
    for number, folder in enumerate(folders):
        folder.rename(tmp_path / f"moved{number}")
        assert slug(tmp_path / f"moved{number}", register) == found[number].slug


SAME = (
    "https://github.com/Me/Thing.git",
    "https://github.com/me/thing",
    "https://user:secret@github.com/me/thing.git/",
    "git@github.com:me/thing.git",
    "github.com:me/thing",
    "ssh://git@github.com/me/thing.git",
    "ssh://git@ssh.github.com:443/me/thing.git",
    "git://GitHub.com:9418/me/thing",
    "https://github.com:443//me/thing.git",
)


def test_all_spellings_of_a_remote_are_equal(tmp_path: Path) -> None:
    assert {normalised_remote(address, tmp_path) for address in SAME} == {"github.com/me/thing"}


def test_different_remotes_stay_different(tmp_path: Path) -> None:
    others = (
        *(
            "https://git.example.org/me/thing",
            "https://git.example.org/Me/thing",
            "https://git.example.org/me",
        ),
        *(
            "https://git.example.org:8443/me/thing",
            "https://example.org/me/thing",
            "/srv/thing.git",
            "../thing",
        ),
        *("ssh://[::1]/me/thing", "file:///srv/other.git", "https://git.example.org:bad/x"),
    )
    found = [normalised_remote(address, tmp_path) for address in others]
    assert len(set(found)) == len(others)
    assert normalised_remote("file:///srv/thing.git", tmp_path) == normalised_remote("/srv/thing", tmp_path)


def test_gits_own_files_are_read_as_git_reads_them(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    git(project, "config", "remote.origin.url", "git@example.org:a#b; c.git")
    git(project, "config", "remote.other.url", "https://example.org/o")
    found = find_project(project)
    assert found is not None
    expected = git(project, "config", "remote.origin.url").strip()
    assert found.remote == normalised_remote(expected, project) == "example.org/a#b; c"


@pytest.mark.parametrize("text", ["gitdir: /nonexistent\n", "", "nonsense", "gitdir: a\0b"])
def test_f16_a_git_file_that_leads_nowhere_is_no_repository(tmp_path: Path, text: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".git").write_text(text)
    found = find_project(tmp_path / "project")
    assert found is not None
    assert (found.root, found.remote) == ((tmp_path / "project").resolve(), "")


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=300))
def test_any_remote_gives_a_valid_memory_file_name(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    root = tmp_path_factory.mktemp("any")
    folder = root / "project"
    (folder / ".git" / "objects").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    config = f'[remote "origin"]\n\turl = "{quoted}"\n'.encode("utf-8", "surrogatepass")
    (folder / ".git" / "config").write_bytes(config)
    register = ProjectRegister(Paths.from_environment({"LETTA_HOME": str(root / "letta")}))
    name = slug(folder, register)
    assert checked_path(overview_path(name)) == f"projects/{name}/overview.md"
    assert name.isprintable()


def test_scopes_are_named_in_words() -> None:
    assert scope_of("system/human.md", "a-1") == "every project"
    assert scope_of(project_folder("a-1") + "x.md", "a-1") == "this project"
    assert scope_of("projects/b-2/x.md", "a-1") == "the project b-2"
    assert scope_of("projects/readme.md", "") == "every project"
