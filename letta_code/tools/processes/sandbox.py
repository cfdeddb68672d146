"""The sandbox for shell commands: bubblewrap on Linux, or nothing that claims to be one.

A command in it sees the whole file system read-only, except the project, added folders, the temporary
folder, the agent's memory work tree and what the person named. Our own files, other agents' memory among
them, are not there at all. It sees no process but its own, and no socket by which a program outside
takes commands. Whether a command may run is `permissions`; this is for when that judged wrongly.

What it is not: a guard for what a command leaves in the project and somebody runs outside later (a
Makefile, a test), nor, with the network on, against servers of this machine that run commands.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.core.text import one_line
from letta_code.errors import StorageError, ToolError
from letta_code.storage import private_folder
from letta_code.tools.processes.sandbox_git import GitParts, git_parts

if TYPE_CHECKING:  # the argument classes load pydantic
    from letta_code.paths import Paths
    from letta_code.settings.loading import SandboxSettings
    from letta_code.tools.base import Workspace

_PROBE_SECONDS = 10.0
_MOST_SCANNED = 5_000  # entries of a temporary folder that are looked at for sockets

# Root outside keeps what concerns files, so that a project of another user can be worked on, and nothing
# that concerns the machine: with CAP_SYS_ADMIN it could remount, with CAP_DAC_READ_SEARCH open any inode.
_ROOT_RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")
_ROOT_PROC = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
"""Files of /proc by which root changes the kernel, whatever its capabilities."""

_RUN_KEPT = (
    "systemd/resolve",
    "resolvconf",
    "NetworkManager/resolv.conf",
    "current-system",
    "opengl-driver",
)
"""What commands need of /run: name resolution, and NixOS's programs. The rest are doors: docker's,
systemd's and D-Bus's sockets start programs outside."""

_PERSONAL = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".inputrc"),
    *(".zshrc", ".zprofile", ".zshenv", ".zlogin", ".vimrc", ".tmux.conf", ".gitconfig", ".netrc"),
    *(".ssh", ".gnupg", ".local/bin", ".config/git", ".config/fish", ".config/systemd"),
    *(".config/autostart", ".config/nvim"),
)
"""Files of the home folder that other programs obey; read-only where home itself can be written."""

_REFUSED = re.compile(r"Read-only file system|EROFS|Device or resource busy|no new privileges")
_CUT_OFF = re.compile(
    r"Network is unreachable|ENETUNREACH|EAI_AGAIN|[Tt]emporary failure in name resolution"
    r"|Could not resolve|Name or service not known"
)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What commands are run in. `problem` says why they cannot be, `cure` what helps; then none is run.

    `temporary` are the system's temporary folders and `write` those that the person opened; `hidden` are
    not there for a command, but for what is `shown` in them. `sockets` and `git` are what existed when the
    session began: what a command made since is nothing to open a folder for. All absolute, resolved.
    """

    program: str = ""
    version: str = ""
    problem: str = ""
    cure: str = ""
    network: bool = True
    temporary: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    sockets: tuple[Path, ...] = ()
    git: GitParts = field(default_factory=GitParts)

    @property
    def opened(self) -> tuple[Path, ...]:
        """What commands may write besides the folders in which tools work."""
        return (*self.temporary, *self.write)

    @property
    def label(self) -> str:
        """For people: "sandbox", "sandbox without network"."""
        if self.problem:
            return "sandbox missing: no command runs"
        return "sandbox" if self.network else "sandbox without network"

    def showing(self, repository: Path) -> Sandbox:
        """This one, in which `repository`, the agent's memory, can be read."""
        return replace(self, shown=(*self.shown, repository.resolve()))

    def description(self, workspace: Workspace) -> str:
        """What the model is told of it beforehand."""
        network = "" if self.network else " There is no network."
        return (
            f"Commands run in a sandbox: they can write only to {self._writable_names(workspace)}, and see "
            f"only their own processes (KillShell stops background ones).{network}"
        )

    def explanation(self, output: str, workspace: Workspace) -> tuple[str, ...]:
        """A line for the model when a failed command's `output` looks like the sandbox's doing."""
        said = []
        if _REFUSED.search(output):
            said.append(
                f"in it only {self._writable_names(workspace)} can be written (not .git/config or hooks)"
            )
        if not self.network and _CUT_OFF.search(output):
            said.append("in it there is no network")
        if not said:
            return ()
        return (
            f"This may be the sandbox: {'; '.join(said)}. Trying again does not help; the person can change "
            "it (settings sandbox.write, sandbox.network, or --no-sandbox).",
        )

    def sweep(self) -> tuple[str, ...]:
        """Take away what a command may have put into a repository so that Git outside obeys a configuration
        and hooks elsewhere: its `commondir`. A line for each that was there."""
        swept = []
        for path in (folder / "commondir" for folder in filter(_is_itself, self.git.writable)):
            if path not in self.git.protected and os.path.lexists(path):
                with suppress(OSError):
                    path.unlink()
                    swept.append(f"Removed {path}: Git would take its configuration from elsewhere.")
        return tuple(swept)

    def _writable_names(self, workspace: Workspace) -> str:
        folders = [folder for folder in (*workspace.roots, *self.opened) if folder.exists()]
        names = ["$MEMORY_DIR" if folder == workspace.memory else str(folder) for folder in folders]
        names = ["the project" if name == str(workspace.project) else name for name in names]
        return one_line(", ".join(dict.fromkeys(names)), 500)

    def wrap(self, words: Sequence[bytes], workspace: Workspace) -> list[bytes]:
        """The words that run `words` inside, in `workspace.project`.

        Raises:
            ToolError: there is no sandbox here.
        """
        if self.problem:
            raise ToolError(
                f"no command can run: the sandbox is asked for and {self.problem}. Do not try again; "
                f"the person can change it: {self.cure}"
            )
        options = [self.program, *_surroundings(self.network)]
        project = workspace.project.resolve()
        memory = None if workspace.memory is None else workspace.memory.resolve()
        roots = [project, *(root.resolve() for root in workspace.roots if root.resolve() != memory)]
        open_roots = [root for root in roots if not _inside(root, self.hidden)]
        written = [*self.opened, *open_roots, *filter(_is_itself, self.git.writable)]
        for folder in sorted({path for path in written if path.exists()}):
            options += _bind(folder, writable=True)
        for path in self.sockets:
            if path.exists():
                options += ["--ro-bind", "/dev/null", str(path)]
        for path in sorted({*filter(_is_itself, self.git.protected), *_protected(open_roots)}):
            options += _bind(path)
        for path in filter(_is_itself, self.git.closed):
            options += ["--tmpfs", str(path), "--remount-ro", str(path)]
        options += self._ours(workspace.overflow.resolve(), memory, roots)
        options += ["--remount-ro", "/run", "--chdir", str(project), "--"]
        return [*map(os.fsencode, options), *words]

    def _ours(self, overflow: Path, memory: Path | None, roots: Iterable[Path]) -> list[str]:
        hidden = [folder for folder in self.hidden if _made(folder)]
        options = [word for folder in hidden for word in ("--tmpfs", str(folder))]
        opened = [root for root in roots if _inside(root, hidden) and root not in hidden]
        for path in (*opened, *self.shown, overflow):
            if path.exists() and _inside(path, hidden):
                options += _bind(path)
        if memory is not None and memory.is_dir():
            options += _bind(memory, writable=True)
            if (memory / ".git").is_file():
                options += _bind(memory / ".git")
        return [*options, *(word for folder in hidden for word in ("--remount-ro", str(folder)))]


def find_sandbox(
    settings: SandboxSettings,
    paths: Paths,
    environment: Mapping[str, str],
    folders: Sequence[Path],
) -> Sandbox:
    """The sandbox that `settings` describe, tried out once. Never raises: `problem` says what is missing.

    `folders` are those in which tools work; the first is the project.
    """
    temporary = temporary_folders(environment)
    write = tuple((folders[0] / os.path.expanduser(folder)).resolve() for folder in settings.write)
    program = shutil.which("bwrap", path=environment.get("PATH")) or ""
    if not sys.platform.startswith("linux"):
        return Sandbox(problem="there is none for this system, only for Linux", cure="--no-sandbox")
    if not program:
        cure = "apt-get install bubblewrap, or --no-sandbox"
        return Sandbox(problem="bubblewrap (bwrap) is not installed", cure=cure)
    program = os.path.realpath(program)
    if any(folder.resolve() == Path("/") for folder in folders):
        return Sandbox(
            problem="the project is the whole file system", cure="start in a folder, or --no-sandbox"
        )
    if _inside(Path(program), (*temporary, *write, *(folder.resolve() for folder in folders))):
        return Sandbox(problem=f"{program} is where commands may write", cure="install it elsewhere")
    version, problem = _tried(program, settings.network, environment)
    if problem:
        cure = "allow user namespaces (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_"
        return Sandbox(
            problem=f"bubblewrap does not work here ({problem})",
            cure=f"{cure}unprivileged_userns), or --no-sandbox",
        )
    hidden = _hidden(paths)
    return Sandbox(
        program=program,
        version=version,
        temporary=temporary,
        network=settings.network,
        write=write,
        hidden=hidden,
        shown=(paths.user_skills().resolve(),),
        sockets=tuple(_sockets({*temporary, Path("/tmp")})),
        git=git_parts(folder.resolve() for folder in folders if not _inside(folder.resolve(), hidden)),
    )


def temporary_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where commands keep temporary files: TMPDIR, or the system's folders. They are shared with all
    other programs, so that Read and a later command find what a command left there."""
    named = environment.get("TMPDIR", "")
    folders = (named,) if os.path.isabs(named) and os.path.isdir(named) else ("/tmp", "/var/tmp")
    return tuple(Path(folder).resolve() for folder in folders)


def is_first_inside(pid: int) -> bool:
    """Whether `pid` is the first process of a sandbox: bubblewrap's own, which ends with the last other
    one and is nothing that a command left behind."""
    try:
        ids = [_namespace_ids(str(pid)), _namespace_ids("self")]
    except OSError:
        return False
    return len(ids[0]) == len(ids[1]) + 1 and ids[0][-1] == "1"


def _namespace_ids(pid: str) -> list[str]:
    for line in Path("/proc", pid, "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("NSpid:"):
            return line.split()[1:]
    return []


def _surroundings(network: bool) -> list[str]:
    options = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-ipc"]
    if not network:
        options.append("--unshare-net")
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        options += [word for right in _ROOT_RIGHTS for word in ("--cap-add", f"CAP_{right}")]
        options += [
            word for name in _ROOT_PROC for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
        ]
    options += ["--tmpfs", "/run"]
    for name in _RUN_KEPT:
        options += ["--ro-bind-try", f"/run/{name}", f"/run/{name}"]
    if not os.path.islink("/var/run"):
        options += ["--tmpfs", "/var/run"]
    return options


def _tried(program: str, network: bool, environment: Mapping[str, str]) -> tuple[str, str]:
    """The version of `program`, and why it does not work here; "" when it does."""
    try:
        named = _run([program, "--version"], environment)
        tried = _run([program, *_surroundings(network), "--", "/bin/sh", "-c", "exit 0"], environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", one_line(str(error), 200)
    version = one_line(named.stdout.decode("utf-8", "replace").strip(), 80)
    if tried.returncode == 0:
        return version, ""
    said = one_line(tried.stderr.decode("utf-8", "replace").strip(), 200)
    return version, said or f"exit code {tried.returncode}"


def _run(arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=dict(environment),
        timeout=_PROBE_SECONDS,
        check=False,
    )


def _hidden(paths: Paths) -> tuple[Path, ...]:
    """Our folders. Memory's parent as a whole where it is Letta's own `~/.letta`."""
    memfs = paths.memfs.parent if paths.memfs.parent.name == ".letta" else paths.memfs
    found = {folder.resolve() for folder in (memfs, paths.config, paths.data, paths.cache, paths.log)}
    return tuple(sorted(folder for folder in found if not _inside(folder, found - {folder})))


def _sockets(folders: Iterable[Path]) -> Iterator[Path]:
    """Sockets in temporary folders and the folders in them. By those of tmux, screen, editors and the X
    server a command would have something done outside."""
    for folder in folders:
        for path in islice(_entries(folder, 2), _MOST_SCANNED):
            try:
                if stat.S_ISSOCK(path.lstat().st_mode):
                    yield path.resolve()
            except OSError:
                continue


def _entries(folder: Path, depth: int) -> Iterator[Path]:
    try:
        found = list(os.scandir(folder))
    except OSError:
        return
    for entry in found:
        yield Path(entry.path)
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path), depth - 1)


def _protected(roots: Iterable[Path]) -> Iterator[Path]:
    """What is inside a folder that can be written, and is read by programs that obey it."""
    home = Path(os.path.expanduser("~")).resolve()
    for root in roots:
        if (root / ".letta").is_dir() and not (root / ".letta").is_symlink():
            yield root / ".letta"  # settings of this program
        if home.is_relative_to(root):
            found = (home / name for name in _PERSONAL)
            yield from (path.resolve() for path in found if path.exists())


def _bind(path: Path, *, writable: bool = False) -> list[str]:
    return ["--bind" if writable else "--ro-bind", str(path), str(path)]


def _made(folder: Path) -> bool:
    """Whether a folder of ours is there, made if need be: one that is not there cannot be hidden, and a
    command might make it."""
    with suppress(StorageError):
        private_folder(folder)
    return folder.is_dir()


def _is_itself(path: Path) -> bool:
    """Whether no part of `path` has become a symbolic link."""
    try:
        return path.resolve() == path and path.parent.is_dir()
    except (OSError, RuntimeError):
        return False


def _inside(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
