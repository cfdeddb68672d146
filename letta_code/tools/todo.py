"""TodoWrite: the model's plan, shown to the person. Nothing is stored: the conversation holds it."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from letta_code.core.tooling import TodoDisplay, TodoItem, ToolKind, ToolOutput
from letta_code.tools.base import Arguments, Call, Tool


class Todo(BaseModel):
    """One step of the plan. Unknown keys (`id`, `priority` of older habits) are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    content: str = Field(min_length=1)
    status: Literal["pending", "in_progress", "completed"]
    activeForm: str = ""


class TodoArguments(Arguments):
    """The whole plan."""

    todos: tuple[Todo, ...]


class TodoWrite(Tool[TodoArguments]):
    """Replace the plan by a new one."""

    name: ClassVar[str] = "TodoWrite"
    kind: ClassVar[ToolKind] = "other"
    arguments = TodoArguments

    def has_effects(self, arguments: TodoArguments) -> bool:
        """None: it only shows."""
        return False

    def title(self, arguments: TodoArguments) -> str:
        """One line for people."""
        done = sum(todo.status == "completed" for todo in arguments.todos)
        return f"Plan: {done} of {len(arguments.todos)} done"

    async def run(self, arguments: TodoArguments, call: Call) -> ToolOutput:
        """Show it."""
        items = tuple(TodoItem(todo.content, todo.status, todo.activeForm) for todo in arguments.todos)
        count = Counter(item.status for item in items)
        text = (
            f"Plan kept: {count['completed']} completed, {count['in_progress']} in progress, "
            f"{count['pending']} pending."
        )
        return ToolOutput.of(text, TodoDisplay(items))
