"""When the prompt's bytes move, and when they do not."""

from __future__ import annotations

from pathlib import Path

from letta_code.agent.memory_notes import MemoryNotes
from letta_code.agent.projects import Project
from letta_code.agent.reminder import Reminder
from letta_code.agent.session import Session
from letta_code.memory.edits import Create, Replace
from letta_code.memory.git.repository import Author
from tests.agent.support import Bench, Scripted, asked, said

AUTHOR = Author("Ada", "a@example.org")


def with_notes(session: Session) -> Session:
    notes = MemoryNotes(session.memory, Project("app-1", session.workspace.project), 0.1)
    session.reminder = Reminder(session.workspace, session.agent.id, session.conversation.id, notes)
    return session


async def test_e34_without_a_change_of_memory_system_and_tools_are_the_same_bytes(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    model = Scripted([said("one"), said("two"), said("three")])
    session = with_notes(bench.session(model))
    bench.store.memory(bench.state).commit(
        Create("projects/app-1/overview.md", "The app.", "Uses pnpm.\n"), "why", AUTHOR
    )
    await bench.turn(session)
    (tmp_path / "project" / "new.txt").write_text("x")
    await bench.turn(session)
    await session.close()
    again = with_notes(bench.session(model, session.conversation.id))
    await bench.turn(again)
    await again.close()
    first, *later = model.requests
    for request in later:
        assert request.system == first.system
        assert request.tools == first.tools
        assert request.messages[: len(first.messages)] == first.messages
    assert "Uses pnpm." not in "".join(first.system)
    told = [message for message in later[-1].messages if "Uses pnpm." in str(message)]
    assert told == [first.messages[0]]


async def test_e33_a_save_is_announced_in_the_conversation_and_the_prefix_stays(tmp_path: Path) -> None:
    for system_messages in (True, False):
        root = tmp_path / str(system_messages)
        root.mkdir()
        bench = Bench.make(root)
        model = Scripted([asked(("c1", "Look", {})), said("one"), said("two")], system_messages)
        session = with_notes(bench.session(model))
        await bench.turn(session)
        before = model.requests[-1]
        bench.store.memory(bench.state).commit(
            Replace("system/human.md", "Nothing is known yet.", "Likes tea."), "told", AUTHOR
        )
        await bench.turn(session)
        after = model.requests[-1]
        await session.close()
        if system_messages:
            assert after.system == before.system
            assert after.messages[: len(before.messages)] == before.messages
            assert "Likes tea." in after.messages[-1].text
        else:
            assert "Likes tea." in "".join(after.system)
