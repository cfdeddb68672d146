"""`letta archive`, and the archive in what else the program says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from letta_code.archive.passages import Wanted
from letta_code.archive.store import SqliteArchive
from letta_code.core.ids import DEFAULT_ORG, AgentKey
from tests.cli.harness import Here, Letta
from tests.model_server import Embeddings, ModelServer, call, turn

SECRET = "the key is sk-ant-api03-aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    (tmp_path / "project").mkdir()
    made = Here(Letta(tmp_path / "home", tmp_path / "project"), monkeypatch, capfd)
    assert made("agents", "create", "--name", "ann").code == 0
    return made


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([], embeddings=Embeddings([("car", "automobile")])) as server:
        yield server


def ids(here: Here, *words: str) -> list[str]:
    return [item["id"] for item in here("archive", "list", "--json", *words).json]


def test_a_person_keeps_looks_at_and_deletes_passages(here: Here) -> None:
    here("agents", "create", "--name", "bob")
    key = AgentKey(DEFAULT_ORG, here("agents", "show", "ann", "--json").json["id"])
    made = here("archive", "insert", "-a", "ann", "The automobile\nis red.", "-t", "Cars", "-t", "red")
    (name,) = ids(here, "-a", "ann")
    assert made.out == f"{name}\n"
    again = here("archive", "insert", "-a", "ann", "the automobile is RED.", "-t", "colour", "--json")
    assert (again.json[0]["id"], again.json[0]["new"]) == (name, False)
    assert "2026" not in here("archive", "search", "-a", "bob", "automobile").out
    found = here("archive", "search", "-a", "ann", "automobile", "-t", "cars", "-t", "colour", "--all-tags")
    assert found.out.split()[0] == name[:16]
    assert "found by words alone: no embedding model is set" in found.err
    shown = here("archive", "show", "-a", "ann", name[8:14])
    assert "tags: cars, red, colour\n\nThe automobile\nis red.\n" in shown.out
    assert here("archive", "show", "-a", "bob", name).code == 1
    assert here("archive", "list", "-a", "ann", "--since", "2001-01-01", "--until", "2002-01-01").out == ""
    assert here("archive", "insert", "-a", "ann", SECRET).code == 1
    assert here("archive", "insert", "-a", "ann", SECRET, "--allow-secret").code == 0
    asked = here("archive", "delete", "-a", "ann", name)
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    assert here("archive", "delete", "-a", "bob", "-y", name).code == 1
    assert here("archive", "delete", "-a", "ann", "-y", name).code == 0
    assert name not in ids(here, "-a", "ann")
    left = here("agents", "delete", "ann")
    assert "its archive (1 passages)" in left.err
    assert here("agents", "delete", "ann", "-y").code == 0
    assert (here.letta.home / "data" / "archive.db").exists()
    assert SqliteArchive(here.letta.home / "data" / "archive.db").newest(key, Wanted()) == []


def test_passages_travel_as_lines_of_json(here: Here, tmp_path: Path) -> None:
    here("agents", "create", "--name", "bob")
    for text in ("one", "two"):
        here("archive", "insert", "-a", "ann", text, "-t", "x")
    file = tmp_path / "out.jsonl"
    assert here("archive", "export", "-a", "ann", str(file)).err == "2 passages\n"
    assert here("archive", "export", "-a", "ann").out == file.read_text()
    assert here("archive", "export", "-a", "bob", str(file)).code == 2
    assert "2 new, 0 were there" in here("archive", "import", "-a", "bob", str(file)).err
    assert "0 new, 2 were there" in here("archive", "import", "-a", "bob", str(file)).err
    copied = here("archive", "list", "-a", "bob", "--json").json
    assert [(item["text"], item["source"], item["tags"]) for item in copied] == [
        ("two", "user-stated", ["x"]),
        ("one", "user-stated", ["x"]),
    ]
    lines = [json.dumps({"text": "three"}), json.dumps({"text": SECRET})]
    file.write_text("\n".join(lines))
    refused = here("archive", "import", "-a", "bob", str(file))
    assert (refused.code, "sk-ant-api03-aB3dE5" in refused.err) == (1, False)
    assert here("archive", "import", "-a", "bob", str(tmp_path / "none")).code == 2
    assert len(ids(here, "-a", "bob")) == 2  # all or nothing


def test_meaning_is_searched_where_a_model_is_set(here: Here, server: ModelServer) -> None:
    here("archive", "insert", "-a", "ann", "The automobile is red.")
    for key, value in (("archive.embedding", "mine/small"), ("providers.mine.base_url", server.url)):
        assert here("config", "set", key, value).code == 0
    told = here("doctor").out
    assert f"archive: searched by words and by mine/small at {server.url}/v1" in told
    assert "ann: 1 passages in the archive, 1 without a vector (letta archive reindex)" in told
    assert "1 passages got a vector of mine/small at" in here("archive", "reindex", "-a", "ann").err
    found = here("archive", "search", "-a", "ann", "car")
    assert "The automobile" in found.out
    assert found.err == ""
    assert here("config", "set", "archive.embedding", "small").code == 2
    assert (
        here("config", "set", "archive.embedding", "mine/small", env={"LETTA_AGENT_ID": "agent-1"}).code == 2
    )
    here("config", "set", "archive.embedding", "openai/x")
    unset = here("archive", "search", "-a", "ann", "automobile")
    assert unset.code == 0
    assert "there is no key for openai" in unset.err
    assert here("archive", "reindex", "-a", "ann").code == 1


def test_a_project_never_says_where_passages_are_sent(here: Here, server: ModelServer) -> None:
    folder = here.letta.project / ".letta"
    folder.mkdir()
    settings = {"archive": {"embedding": "mine/small"}, "providers": {"mine": {"base_url": server.url}}}
    (folder / "settings.json").write_text(json.dumps(settings))
    here("archive", "insert", "-a", "ann", "The automobile is red.")
    assert "no embedding model is set" in here("archive", "search", "-a", "ann", "car").err
    assert server.lookups == []


def test_an_agents_shell_has_its_own_passages_to_read(here: Here) -> None:
    here("archive", "insert", "-a", "ann", "The automobile is red.")
    (name,) = ids(here, "-a", "ann")
    ann = {"LETTA_AGENT_ID": here("agents", "show", "ann", "--json").json["id"]}
    assert [item["id"] for item in here("archive", "list", "--json", env=ann).json] == [name]
    here("agents", "create", "--name", "bob")
    for words in (("list", "-a", "bob"), ("insert", "x"), ("import", "x.jsonl"), ("delete", "-y", name)):
        assert here("archive", *words, env=ann).code == 2, words


def test_a_damaged_file_is_one_line_and_the_conversation_goes_on(here: Here) -> None:
    (here.letta.home / "data" / "archive.db").write_bytes(b"no database " * 1000)
    shown = here("archive", "list", "-a", "ann")
    assert shown.code == 1
    assert "is damaged" in shown.err
    with ModelServer([turn("Hello.")]) as server:
        done = here("-p", "-a", "ann", "-m", "vllm/scripted", "hi", env={"VLLM_BASE_URL": server.url})
    assert (done.code, done.out) == (0, "Hello.\n")
    assert done.err.count("this session has no archive") == 1
    tools = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
    assert "memory" in tools
    assert "archival_memory_insert" not in tools


def test_a_session_keeps_and_the_next_one_knows(here: Here) -> None:
    script = [
        turn("", call("archival_memory_insert", content="The staging server is heron.", tags=["servers"])),
        turn("Noted."),
        turn("", call("archival_memory_search", query="staging")),
        turn("Heron."),
    ]
    with ModelServer(script) as server:
        words = ("-p", "-a", "ann", "-m", "vllm/scripted")
        for text, answer in (("staging is heron", "Noted.\n"), ("which server is staging?", "Heron.\n")):
            done = here(*words, text, env={"VLLM_BASE_URL": server.url})
            assert (done.code, done.out) == (0, answer), done.err
        server.assert_finished()
    assert "Archive: 1 passages (archival_memory_search); tags: servers (1)" in json.dumps(
        server.requests[2].body
    )
    assert "Archive:" not in json.dumps(server.requests[0].body)
    assert "The staging server is heron." in server.requests[3].body["messages"][-1]["content"]
