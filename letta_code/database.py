"""SQLite files: the one place that imports sqlite3. Whose tables they are is in `recall` and `archive`.

A file is opened in write-ahead mode, so that readers and one writer do not wait for one another, with the
schema that its owner names. Several processes may have it open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from letta_code.errors import StorageError
from letta_code.storage import locked, private_folder

_BUSY_SECONDS = 20.0
_COMPANIONS = ("", "-wal", "-shm", "-journal")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

Row = tuple[Any, ...]


class DamagedDatabase(StorageError):
    """The file is no SQLite database any more, or contradicts itself."""


class BusyDatabase(StorageError):
    """Another process has been writing for very long."""


class OtherSchema(StorageError):
    """The file was written with another version of its owner's tables."""


@dataclass(frozen=True, slots=True)
class Schema:
    """An owner's tables: the `version` of their shape, and the statements that make them in an empty file.
    `derived`: the content can be made anew from elsewhere, so a file that is damaged or has another version
    is deleted."""

    version: int
    statements: tuple[str, ...]
    derived: bool = False


class Database:
    """One open file. Statements outside of `writing` stand for themselves.

    Every method raises `StorageError` when the disk refuses or another process writes for very long, and
    `DamagedDatabase` when the file is damaged.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Use `open_database`."""
        self.path = path
        self.remade = False
        """Whether a file of no use was deleted when this one was opened."""
        self._connection = connection
        self._inode = path.stat().st_ino

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """What a statement gives."""
        with _told(self.path):
            return self._connection.execute(statement, values).fetchall()

    def row(self, statement: str, values: Sequence[Any] = ()) -> Row | None:
        """The first row of what a statement gives."""
        with _told(self.path):
            found: Row | None = self._connection.execute(statement, values).fetchone()
            return found

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Do a statement; returns how many rows it changed."""
        with _told(self.path):
            return self._connection.execute(statement, values).rowcount

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Do a statement once for each of `values`."""
        with _told(self.path):
            self._connection.executemany(statement, values)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All statements of the block happen, or none. One process at a time is in such a block."""
        with self._transaction("IMMEDIATE"):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What the block reads is of one moment, whatever other processes write meanwhile."""
        with self._transaction("DEFERRED"):
            yield

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self.run(f"BEGIN {kind}")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise

    def load_extension(self, file: str) -> None:
        """Load a compiled extension of SQLite.

        Raises:
            StorageError: this Python cannot, or it is no extension.
        """
        with _told(self.path):
            try:
                self._connection.enable_load_extension(True)
            except AttributeError as error:
                raise StorageError("this Python's SQLite loads no extensions") from error
            try:
                self._connection.load_extension(file)
            finally:
                self._connection.enable_load_extension(False)

    def define(self, name: str, function: Callable[..., Any], arguments: int) -> None:
        """Let statements call `function`, which always gives the same for the same."""
        self._connection.create_function(name, arguments, function, deterministic=True)

    def discard(self) -> None:
        """Close the file and delete it, unless another process has done so and made it anew."""
        with _opening(self.path):
            try:  # the number is not given to another file while this one is open
                if self.path.stat().st_ino == self._inode:
                    _delete(self.path)
            except FileNotFoundError:
                pass
            finally:
                self.close()

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._connection.close()


def open_database(path: Path, schema: Schema) -> Database:
    """Open the file at `path`, which is made when it is missing, readable for its owner only.

    Raises:
        DamagedDatabase: it is damaged. OtherSchema: it has another version of the tables.
        StorageError: it cannot be opened, or this Python's SQLite lacks what the tables need.
    """
    private_folder(path.parent)
    with _opening(path):
        try:
            return _opened(path, schema)
        except (DamagedDatabase, OtherSchema):
            if not schema.derived:
                raise
        _delete(path)
        database = _opened(path, schema)
        database.remade = True
        return database


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Nobody deletes the file while its companions are opened: the write-ahead log of one file must not be
    taken for that of another."""
    busy = f"{path} is being opened by another process"
    with locked(path.with_suffix(".lock"), _BUSY_SECONDS, busy, "try again in a moment"):
        yield


def _opened(path: Path, schema: Schema) -> Database:
    _make(path)
    with _told(path):
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            database = Database(path, connection)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            # What can be made anew need not survive a power cut to the last word.
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if schema.derived else 'FULL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            _made(database, schema)
        except BaseException:
            connection.close()
            raise
        return database


def _make(path: Path) -> None:
    try:  # an existing file is not touched: closing it would free the locks of our other connections to it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StorageError(
            f"cannot make {path}: {error.strerror}", "check the disk's free space and the folder's owner"
        ) from error


def _made(database: Database, schema: Schema) -> None:
    """Make the tables in an empty file, or see that they are those of `schema`."""
    found = _version(database)
    if found == 0:
        with database.writing():
            found = _version(database)  # another process may have made them by now
            if found == 0 and database.row("SELECT 1 FROM sqlite_master LIMIT 1") is None:
                for statement in schema.statements:
                    database.run(statement)
                database.run(f"PRAGMA user_version = {schema.version}")
                found = schema.version
    if found != schema.version:
        newer = found > schema.version
        raise OtherSchema(
            f"{database.path} was written by {'a newer' if newer else 'another'} version of Letta Code",
            "update Letta Code" if newer else "move that file away",
        )


def _version(database: Database) -> int:
    row = database.row("PRAGMA user_version")
    return 0 if row is None else int(row[0])


def _delete(path: Path) -> None:
    for ending in _COMPANIONS:
        Path(f"{path}{ending}").unlink(missing_ok=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _error(path, error) from error


def _error(path: Path, error: sqlite3.Error) -> Exception:
    """What a person is told; a fault of our own statements stays as it is."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGE:
        return DamagedDatabase(
            f"{path} is damaged: {error}",
            "restore it from a backup, or move it away to begin with an empty one",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BusyDatabase(f"{path} is in use by another process for long", "try again in a moment")
    if code in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
    ):
        return StorageError(f"cannot use {path}: {error}", "check the disk's free space and the file's owner")
    if "no such module" in str(error):
        return StorageError(f"this Python's SQLite cannot keep {path.name}: {error}", "use another Python")
    return error
