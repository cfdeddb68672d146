"""What a tool is.

A tool has typed arguments (their JSON Schema is what the model sees), says beforehand what a call would
touch (so that permission can be judged), and runs. It knows no front end and asks nobody.

To add one: a pydantic arguments class and a `Tool` subclass in `tools/NAME.py`, its description in
`tools/descriptions/NAME.md`, one line in `tools/toolbox.py`, tests.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from letta_code.core.messages import ToolSpec
from letta_code.core.tooling import Display, ToolKind, ToolOutput

if TYPE_CHECKING:
    from letta_code.tools.processes.sandbox import Sandbox
    from letta_code.tools.undoing import Undoing


class Arguments(BaseModel):
    """Base of every tool's arguments. Unknown arguments are refused, so that a typo is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Access:
    """One thing a call would touch: a path to read or write (absolute, as given, not yet resolved), or
    a shell command to run."""

    kind: Literal["read", "write", "command"]
    target: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a call would put into memory: its new text, the text it replaces, and whether the model itself
    says that it comes from tool output, or that the person stated it. `reviewable`: it can be held back
    until the person has seen it."""

    text: str
    replaced: str = ""
    from_outside: bool = False
    stated: bool = False
    reviewable: bool = True


def our_environment(environment: Mapping[str, str], folders: Iterable[Path]) -> dict[str, str]:
    """`environment` without those places of PATH that are relative or in `folders` (resolved): what is found
    there may be a file that a tool or a command put there under the name of ripgrep or git."""
    opened = tuple(folders)
    places = environment.get("PATH", os.defpath).split(os.pathsep)
    kept = [
        place
        for place in places
        if os.path.isabs(place)
        and not any(Path(os.path.realpath(place)).is_relative_to(folder) for folder in opened)
    ]
    return {**environment, "PATH": os.pathsep.join(kept)}


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a conversation's tools work.

    `project` is the working directory; `roots` are the folders inside which reading needs no question
    (project, added folders, memory work tree), all resolved; `memory` is the agent's memory work tree;
    `overflow` receives full texts of cut outputs (made when first needed); `environment` is what child
    processes get; `sandbox` is what shell commands run in (None: in none); `undo` is told what is
    about to change (None: nothing can be taken back).
    """

    project: Path
    roots: tuple[Path, ...]
    overflow: Path
    memory: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    undo: Undoing | None = None

    def our_environment(self) -> dict[str, str]:
        """What programs get that we run ourselves, outside any sandbox: `our_environment` for all folders
        in which tools and commands may write."""
        opened = () if self.sandbox is None else self.sandbox.opened
        return our_environment(self.environment or os.environ, (*self.roots, *opened))

    def absolute(self, path: str) -> Path:
        """`path` as an absolute path below the project, `~` and `$MEMORY_DIR` expanded; symlinks are
        kept and `..` is collapsed only by the file system."""
        if self.memory is not None:
            for variable in ("$MEMORY_DIR", "${MEMORY_DIR}"):
                if path == variable or path.startswith(variable + "/"):
                    return self.memory / path[len(variable) :].lstrip("/")
        return self.project / os.path.expanduser(path)  # which, unlike Path's, leaves ~nobody alone

    def is_memory(self, path: str) -> bool:
        """Whether `path` leads into the memory work tree."""
        try:
            return self.memory is not None and self.absolute(path).resolve().is_relative_to(
                self.memory.resolve()
            )
        except (OSError, RuntimeError, ValueError):
            return False  # it leads nowhere; the tool says so


@dataclass(frozen=True, slots=True)
class Call:
    """One call's surroundings: its id, the conversation, a `pointer` to the message that made it
    (`conversation:message`, "" when there is none), the memory revision (hex) the model knew when it
    made the call ("" when none is known), and where its running output goes. `from_outside`: the text it
    brings was found in tool output or a file, not in what the person said; `consented`: the person was
    asked and agreed. `judged`: the files that permission was judged for, resolved; what the call touches is
    one of them (None: whoever runs the tool stands for that). `turn` counts from 1."""

    id: str
    conversation_id: str = ""
    memory_revision: str = ""
    from_outside: bool = False
    consented: bool = False
    judged: tuple[Path, ...] | None = None
    progress: Callable[[str], None] = lambda text: None
    turn: int = 0
    pointer: str = ""


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


class Tool(ABC, Generic[ArgumentsT]):
    """One tool. Instances live as long as a conversation is open."""

    name: ClassVar[str]
    kind: ClassVar[ToolKind]
    description_file: ClassVar[str] = ""
    arguments: type[ArgumentsT]

    def spec(self) -> ToolSpec:
        """Name, description and schema for the model; the same bytes every time."""
        return ToolSpec(self.name, self.description(), compact_schema(self.arguments))

    def description(self) -> str:
        """The Markdown text beside the code."""
        name = self.description_file or f"{self.name.lower()}.md"
        return files("letta_code.tools").joinpath("descriptions", name).read_text("utf-8").strip()

    def has_effects(self, arguments: ArgumentsT) -> bool:
        """Whether running it twice could matter. Such calls run one by one and are journalled."""
        return self.kind != "read"

    def accesses(self, arguments: ArgumentsT) -> tuple[Access, ...]:
        """What the call would touch."""
        return ()

    def remembers(self, arguments: ArgumentsT) -> Remembered | None:
        """What the call would put into the agent's memory; None when it puts nothing there."""
        return None

    @abstractmethod
    def title(self, arguments: ArgumentsT) -> str:
        """One line for people: "Edit src/a.py"."""

    def preview(self, arguments: ArgumentsT) -> tuple[Display, ...]:
        """What the call would do, for the permission question; empty when that can't be known.
        Never raises and never changes anything."""
        return ()

    @abstractmethod
    async def run(self, arguments: ArgumentsT, call: Call) -> ToolOutput:
        """Do it.

        Cancellation arrives as `asyncio.CancelledError`: clean up (kill process trees) and re-raise.

        Raises:
            ToolError: refused or failed, in words the model can act on.
        """

    async def close(self) -> tuple[str, ...]:
        """Free what the tool holds (background processes); lines for the person about what that ended."""
        return ()


@cache
def compact_schema(arguments: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON Schema of an arguments class without what costs tokens and says nothing: titles,
    `anyOf` with null for optional fields, null defaults, the class docstring. The same object every time."""
    schema = arguments.model_json_schema()
    definitions = schema.pop("$defs", {})
    cleaned: dict[str, Any] = _clean(schema, definitions)
    cleaned.pop("description", None)
    return cleaned


def _clean(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_clean(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        inner = dict(definitions[node["$ref"].rsplit("/", 1)[1]])
        inner.pop("description", None)
        inner.update({key: value for key, value in node.items() if key != "$ref"})
        return _clean(inner, definitions)
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        node = {**{key: value for key, value in node.items() if key != "anyOf"}, **options[0]}
    cleaned = {}
    for key, value in node.items():
        if key == "title" and isinstance(value, str):
            continue
        if key == "default" and value is None:
            continue
        if key == "properties":
            cleaned[key] = {name: _clean(item, definitions) for name, item in value.items()}
        else:
            cleaned[key] = _clean(value, definitions)
    return cleaned
