"""Our SQLite files: made private, all or nothing, and honest about damage."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

import pytest

from letta_code.database import DamagedDatabase, OtherSchema, Schema, open_database

NOTES = Schema(3, ("CREATE TABLE note (text TEXT)",))


def test_a_file_is_made_private_and_keeps_what_was_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "data" / "notes.db"
    first, second = open_database(path, NOTES), open_database(path, NOTES)
    with first.writing():
        first.run("INSERT INTO note VALUES ('kept')")
    with suppress(ValueError), first.writing():
        first.run("INSERT INTO note VALUES ('lost')")
        raise ValueError("stop")
    assert second.rows("SELECT text FROM note") == [("kept",)]
    with second.reading():
        assert second.rows("SELECT text FROM note") == [("kept",)]
        first.run("INSERT INTO note VALUES ('later')")
        assert second.rows("SELECT text FROM note") == [("kept",)]
    assert len(second.rows("SELECT text FROM note")) == 2
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in path.parent.iterdir()} == {0}
    first.close()
    second.close()


def test_a_damaged_file_is_told_and_one_that_can_be_made_anew_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(b"no database at all " * 100)
    with pytest.raises(DamagedDatabase) as told:
        open_database(path, NOTES)
    assert "backup" in told.value.hint
    assert path.read_bytes().startswith(b"no database")

    derived = Schema(3, NOTES.statements, derived=True)
    database = open_database(path, derived)
    assert database.remade
    assert database.rows("SELECT * FROM note") == []
    other = open_database(path, derived)
    database.discard()
    assert not path.exists()
    open_database(path, derived).close()
    other.discard()  # it is another file by now, which stays
    assert path.exists()


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    open_database(path, Schema(4, NOTES.statements)).close()
    with pytest.raises(OtherSchema) as told:
        open_database(path, NOTES)
    assert told.value.hint == "update Letta Code"
    assert open_database(path, Schema(3, NOTES.statements, derived=True)).remade
