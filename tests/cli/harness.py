"""Runs the real `letta` with its own home: in a process of its own, or in this one, which is much cheaper."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from letta_code.cli.entry import run

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, decoded."""
        return json.loads(self.out)


@dataclass(slots=True)
class Letta:
    """`letta` with everything of it below one temporary folder."""

    home: Path
    project: Path
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a run: nothing of ours leaks in."""
        base = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home.parent),
            "LETTA_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "LETTA_RETRY_BASE_SECONDS": "0.01",
        }
        return base | self.environment | dict(more or {})

    def command(self, *words: str) -> list[str]:
        """The words that start it."""
        return [sys.executable, "-W", "error", "-m", "letta_code", *words]

    def __call__(
        self,
        *words: str,
        stdin: str | bytes | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 50,
    ) -> Done:
        """Run it to its end."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.command(*words),
            cwd=cwd or self.project,
            env=self.variables(env),
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Done(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start it and leave it running; the caller ends it."""
        return subprocess.Popen(
            self.command(*words),
            cwd=self.project,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


class Here:
    """`letta` in this process, with the environment and the folder that a process of its own would have."""

    def __init__(self, letta: Letta, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.letta = letta
        self._patch = patch
        self._capture = capture

    def __call__(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
        variables = self.letta.variables(env)
        with self._patch.context() as patch:
            patch.setattr(sys, "excepthook", sys.excepthook)  # `run` replaces it
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.chdir(cwd or self.letta.project)
            code = run(words)
        out, err = self._capture.readouterr()
        return Done(code, out, err)
