"""What went wrong, said on stderr in one line; bugs also in a private log file, their tracebacks without the
secrets of the environment."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from letta_code import __version__
from letta_code.errors import LettaError
from letta_code.paths import Paths
from letta_code.storage import private_folder

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class LogFile(logging.Handler):
    """Sends what any layer or library logs (warnings and worse) to the log file and never to stderr,
    which is the person's, nor to stdout, which is the answer's."""

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record, with its traceback. A log that cannot be written is no reason to fail."""
        error = record.exc_info[1] if record.exc_info else None
        trace = "".join(traceback.format_exception(error)) if error else ""
        try:
            _append(f"{record.name}: {record.getMessage()}\n{trace}", os.environ)
        except (LettaError, OSError):
            pass


def complain(message: str, hint: str = "") -> None:
    """Say what went wrong on stderr: one line, and what to do about it."""
    sys.stderr.write(f"letta: {message}\n")
    for line in hint.splitlines():
        sys.stderr.write(f"       {line}\n")


def report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Record an error that nobody expected, and say so in one line: an interpreter's `excepthook`."""
    try:
        where = f"; the details are in {record_bug(error)}"
    except (LettaError, OSError):
        where = ""
    complain(f"this is a bug in letta ({kind.__name__}){where}", "please report it with those details")


def record_bug(error: BaseException, environment: Mapping[str, str] = os.environ) -> Path:
    """Append the traceback of `error` to the log file (0600) and return its path.

    Raises:
        LettaError, OSError: it cannot be written.
    """
    return _append("".join(traceback.format_exception(error)), environment)


def _append(text: str, environment: Mapping[str, str]) -> Path:
    file = Paths.from_environment(environment).log_file()
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and len(value) > 3:
            text = text.replace(value, f"<{name}>")
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    private_folder(file.parent)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
        log.write(f"{stamp} letta-code {__version__}\n{text}\n")
    return file
