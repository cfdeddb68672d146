"""Recall: what tools and commands use. Opens the index, brings it up to date, searches, and makes a damaged
one anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from letta_code.core.ids import AgentKey
from letta_code.database import BusyDatabase, DamagedDatabase, Database, open_database
from letta_code.paths import Paths
from letta_code.recall import index
from letta_code.recall.search import Found, Wanted, search

_Result = TypeVar("_Result")

Say = Callable[[str], None]
Progress = Callable[[int], None]


class Recall:
    """The stored messages of this person. `say` is told what the person should know, one line each."""

    def __init__(
        self, paths: Paths, say: Say = lambda line: None, progress: Progress = lambda count: None
    ) -> None:
        self._paths = paths
        self._say = say
        self._progress = progress

    def search(self, wanted: Wanted) -> Found:
        """What fits, in the index as the transcripts are now.

        Raises:
            StorageError: the index cannot be made or read.
        """

        def run(database: Database) -> Found:
            try:
                index.update(database, self._paths, wanted.agent, self._progress)
            except BusyDatabase:
                self._say("another process is indexing: the newest messages may be missing")
            with database.reading():
                return search(database, self._paths, wanted)

        return self._with(run)

    def status(self) -> index.Status:
        """What the index holds now, without bringing it up to date.

        Raises:
            StorageError: the index cannot be read.
        """
        return self._with(lambda database: index.status(database, self._paths))

    def rebuild(self, key: AgentKey | None = None) -> int:
        """Make the index anew; returns how many messages it holds.

        Raises:
            StorageError: the index cannot be made.
        """
        open_database(self._paths.recall_index(), index.SCHEMA).discard()
        return self._with(lambda database: index.update(database, self._paths, key, self._progress))

    def _with(self, action: Callable[[Database], _Result]) -> _Result:
        database = self._opened()
        try:
            return action(database)
        except DamagedDatabase:
            database.discard()
        finally:
            database.close()
        self._say("the search index was damaged and is made anew")
        database = self._opened()
        try:
            return action(database)
        finally:
            database.close()

    def _opened(self) -> Database:
        database = open_database(self._paths.recall_index(), index.SCHEMA)
        if database.remade:
            self._say("the search index was damaged or of another version and is made anew")
        return database
