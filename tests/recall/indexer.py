"""A program for `test_index.py`: brings the index of a home up to date, and says after each transaction how
many messages it added."""

from __future__ import annotations

import sys
from pathlib import Path

from letta_code.core.query import parse
from letta_code.paths import Paths
from letta_code.recall.recall import Recall
from letta_code.recall.search import Wanted


def main(home: Path) -> None:
    def progress(count: int) -> None:
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()

    paths = Paths.from_environment({"LETTA_HOME": str(home)})
    found = Recall(paths, lambda line: None, progress).search(Wanted(parse("heron")))
    sys.stdout.write(f"found {found.total}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
