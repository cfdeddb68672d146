"""A program for `test_process_trees`: it runs one shell command as letta does and waits. `python -m
tests.tools.owner FOLDER COMMAND`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from letta_code.tools.base import Call, Workspace
from letta_code.tools.shell import Bash, BashArguments, ShellPool


async def main(folder: Path, command: str) -> None:
    workspace = Workspace(folder, (folder,), folder / "overflow")
    tool = Bash(workspace, ShellPool(workspace))
    await tool.run(BashArguments(command=command), Call("1"))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
