"""`letta conversations search` and `show`, `letta index`: the person's doors to stored messages."""

from __future__ import annotations

from letta_code.core.ids import DEFAULT_ORG, AgentKey
from letta_code.core.text import one_line
from letta_code.paths import Paths
from tests.cli.harness import Here
from tests.recall.support import Memories


def test_messages_are_searched_and_read_on_the_command_line(here: Here) -> None:
    home = here.letta.home
    memories = Memories(home, Paths.from_environment({"LETTA_HOME": str(home)}))
    ids = [here("agents", "create", "--name", name).out.strip() for name in ("one", "two")]
    keys = [AgentKey(DEFAULT_ORG, agent) for agent in ids]
    stored = memories.told("数据库迁移 \x1b[31mred", "the heron sleeps", key=keys[0])
    memories.told("another heron", key=keys[1])
    search = ("conversations", "search")

    shown = here(*search, "迁移")
    assert shown.out.splitlines()[1] == "  数据库迁移 \\x1b[31mred"
    assert f"user  one  {stored.id}:message-" in shown.out
    assert shown.err == "1 of 1 message\n"
    assert here(*search, "heron", "--json").json["total"] == 2
    assert here(*search, "heron", "zebra").err == "no message has all of that; 2 have some of it\n"
    assert here(*search, "(*").err == "nothing found\n"
    assert "another" not in here(*search, "heron", "--agent", "one").out
    assert here(*search, "heron", "-r", "assistant").out == ""
    assert here(*search, "heron", "--until", "2020-01-01").out == ""
    assert "user: the heron sleeps" in here(*search, "noted", "-C1", "--in", stored.id).out
    assert here(*search, "heron", "-r", "nobody").code == 2
    assert here(*search, "heron", "--since", "soon").code == 2

    (hit,) = here(*search, "sleeps", "--json").json["hits"]
    assert (hit["text"], hit["snippet"], hit["role"]) == ("the heron sleeps", "the heron **sleeps**", "user")
    page = here("conversations", "show", hit["pointer"], "-C", "1").out
    assert [line.split()[:2] for line in page.splitlines() if line.startswith("─")] == [
        ["──", "assistant"],
        ["─►", "user"],
        ["──", "assistant"],
    ]
    assert here("conversations", "show", hit["pointer"], "--json").json["place"] == 2
    assert here("conversations", "show", f"{stored.id}:message-x").code == 1

    status = here("index", "status", "--json").json
    assert (status["conversations"], status["messages"], status["behind"]) == (2, 6, 0)
    assert here("index", "rebuild").err == "6 messages are indexed\n"
    assert one_line(here("index", "status").out).startswith("6 messages of 2 conversations")

    shell = {"LETTA_AGENT_ID": ids[1]}
    assert "another heron" in here(*search, "heron", env=shell).out
    assert "sleeps" not in here(*search, "heron", env=shell).out
    assert here(*search, "heron", "--agent", "one", env=shell).code == 2
    for words in (("show", hit["pointer"]), ("show", stored.id), ("fork", stored.id)):
        assert here("conversations", *words, env=shell).code == 1
    for command in (
        ("index", "rebuild"),
        ("conversations", "delete", "-y", stored.id),
        ("agents", "delete", "-y", "--purge", "one"),
        ("agents", "delete", "-y", ids[1]),
    ):
        assert here(*command, env=shell).code == 2
    assert len(here("agents", "list", "--json").json) == 2
    assert here(*search, "sleeps", "--json").json["total"] == 1
