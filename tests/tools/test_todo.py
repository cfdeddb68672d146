"""TodoWrite, and what the file tools cost in every request."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from letta_code.core.tooling import TodoDisplay, TodoItem
from letta_code.tools.base import Call
from letta_code.tools.todo import TodoArguments, TodoWrite


async def test_the_plan_is_shown_and_counted() -> None:
    todos = [
        {"content": "a", "status": "completed", "activeForm": "doing a"},
        {"content": "b", "status": "in_progress", "id": "2", "priority": "high"},
    ]
    arguments = TodoArguments.model_validate({"todos": todos})
    output = await TodoWrite().run(arguments, Call("call-1"))
    items = (TodoItem("a", "completed", "doing a"), TodoItem("b", "in_progress"))
    assert output.display == (TodoDisplay(items),)
    assert "1 completed, 1 in progress, 0 pending" in output.content[0].text  # type: ignore[union-attr]


def test_a_status_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError):
        TodoArguments.model_validate({"todos": [{"content": "a", "status": "done"}]})
