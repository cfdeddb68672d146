"""What a search leaves out of its result: files whose content the model should not come across unasked.

Why a file is left out is judged by `paths`; here it is applied and told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from letta_code.tools.diskfile import show_name

LeftOut = Literal["", "own", "secret", "denied"]
"""Why a search leaves a file out that it comes across; "" for those that it shows."""

Sight = Callable[[Path], Callable[[str], LeftOut]]
"""For a folder (resolved): why a file below it, named relative to it, is left out."""

_WORDS = {
    "secret": "matching file{s} left out because secrets are in {it} by the name",
    "denied": "matching file{s} left out because a rule denies reading {it}",
    "own": "matching file{s} of this program left out",
}


def all_is_seen(folder: Path) -> Callable[[str], LeftOut]:
    """Leaves nothing out."""
    return lambda relative: ""


@dataclass(slots=True)
class Seen:
    """Whether a path is wanted (`test`) and shown, and what was left out. `names`: only names are shown, so
    only what is closed altogether is left out."""

    test: Callable[[str], bool]
    why: Callable[[str], LeftOut]
    names: bool = False
    left: dict[LeftOut, set[str]] = field(default_factory=dict)

    def __call__(self, path: str) -> bool:
        """Whether `path`, relative to the folder, is in the result."""
        if not self.test(path):
            return False
        reason = self.why(path)
        if not reason or (self.names and reason != "own"):
            return True
        self.left.setdefault(reason, set()).add(path)
        return False

    def notes(self) -> list[str]:
        """What the model is told about it."""
        found = []
        for reason in ("secret", "denied", "own"):
            if names := sorted(self.left.get(reason, ())):
                many = len(names) > 1
                words = _WORDS[reason].format(s="s" if many else "", it="them" if many else "it")
                example = "" if reason == "own" else f", such as {show_name(names[0])}"
                cure = "; Read or Grep with that very path asks the person" if reason == "secret" else ""
                found.append(f"[{len(names)} {words}{example}{cure}]")
        return found
