"""The hooks of a memory's repository: plain `git commit` and `git merge` there obey the rules of memory, and
what an agent commits that way says so. Only files here; the check itself is `letta memory check --staged`.

A hook that a person put there is never touched: ours are known by their second line.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import letta_code
from letta_code.errors import StorageError
from letta_code.storage import private_folder, write_atomically

NAMES = ("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg")

_OURS = "# letta-code: this hook is kept up to date by letta; delete this line to keep a version of your own."

_SCRIPT = r"""#!/bin/sh
{ours}
python={python}
package={package}
repository=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 0

check() {{
  if [ -x "$python" ] && [ -f "$package/letta_code/cli/hook.py" ]; then
    "$python" -I -c 'import sys
sys.path.insert(0, sys.argv.pop(1))
from letta_code.cli.hook import main
sys.exit(main(sys.argv[1:]))' "$package" "$1" "$repository" "$2"
  elif command -v letta >/dev/null 2>&1; then
    [ "$1" = message ] || GIT_DIR=$repository letta memory check --staged
  else
    echo "letta: not checked, since letta is not installed any more: $repository" >&2
  fi
}}

# What an agent's message says of its own origin is not believed.
trailers() {{
  [ -n "$LETTA_AGENT_ID" ] || return 0
  grep -qv -e '^#' -e '^[[:space:]]*$' "$1" || return 0
  message=$1
  if grep -iv '^letta-[a-z-]*[[:space:]]*:' "$message" >"$message.letta"; then
    cat "$message.letta" >"$message"
  fi
  rm -f "$message.letta"
  set -- --trailer 'Letta-Source: inferred'
  case $LETTA_CONVERSATION_ID in
    '' | *[!A-Za-z0-9_-]*) ;;
    *) set -- --trailer "Letta-Conversation: $LETTA_CONVERSATION_ID" "$@" ;;
  esac
  case $LETTA_AGENT_ID in
    *[!A-Za-z0-9_-]*) ;;
    *) set -- --trailer "Letta-Agent: $LETTA_AGENT_ID" "$@" ;;
  esac
  git interpret-trailers --in-place --if-exists replace "$@" "$message"
}}

case ${{0##*/}} in
  pre-commit | pre-merge-commit)
    # An agent is checked at the next step: --no-verify does not skip it, revert and cherry-pick have it too.
    [ -n "$LETTA_AGENT_ID" ] || check staged ;;
  prepare-commit-msg)
    if [ -n "$LETTA_AGENT_ID" ]; then check staged || exit 1; fi
    [ -z "$2" ] || trailers "$1" ;;
  commit-msg)
    trailers "$1"
    # Only a message that could hold a secret is worth the start of an interpreter.
    hints='[a-z0-9+/_-]{{16}}|://|pass|pwd|wort|senha|secret|credential|key|token|earer|-u|[^ -~]'
    if grep -v '^Letta-' "$1" | LC_ALL=C grep -qiE "$hints"; then
      check message "$1"
    fi ;;
esac
"""


def install_hooks(git_dir: Path) -> None:
    """Write our hooks where they are missing or from another version. A repository that cannot be written
    to stays as it is."""
    script = _script()
    try:
        for file in _files(git_dir):
            text = _text(file)
            if text != script and (text == "" or _OURS in text) and not file.is_symlink():
                private_folder(file.parent)
                write_atomically(file, script.encode("utf-8"), 0o700)
    except (OSError, StorageError):
        return  # reading memory goes on; `letta memory check` names what is missing


def missing_hooks(git_dir: Path) -> tuple[str, ...]:
    """The names of hooks that are not ours, and so do not check."""
    return tuple(file.name for file in _files(git_dir) if _OURS not in _text(file))


def _files(git_dir: Path) -> Iterator[Path]:
    return (git_dir / "hooks" / name for name in NAMES)


def _text(file: Path) -> str:
    """What is in it; empty when there is no such file."""
    try:
        return file.read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _script() -> str:
    package = Path(letta_code.__file__).parents[1]
    return _SCRIPT.format(ours=_OURS, python=shlex.quote(sys.executable), package=shlex.quote(str(package)))
