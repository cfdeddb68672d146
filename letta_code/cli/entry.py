"""From the words of a command line to an exit code: streams, errors, interrupts and bugs."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence

import typer

from letta_code.cli.bugs import LogFile, complain, report_bug
from letta_code.errors import EXIT_INTERRUPTED, EXIT_USAGE, LettaError


def run(words: Sequence[str]) -> int:
    """Run `letta` with `words`. What a person can fix is said in one line and a hint on stderr; a bug is
    recorded in the log file and said in one line (by the interpreter's hook, exit code 1)."""
    sys.excepthook = report_bug
    logging.basicConfig(handlers=[LogFile(logging.WARNING)])
    _never_refuse_a_character()
    try:
        code = _invoke(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever reads has read enough. Python flushes again when it ends, so the pipe must be gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _invoke(words: Sequence[str]) -> int:
    from letta_code.cli.main import invoke

    try:
        return invoke(words)
    except LettaError as error:
        complain(error.message, error.hint)
        return error.exit_code
    except typer.TyperException as error:
        _complain_of_usage(error.format_message(), getattr(error, "ctx", None))
        return EXIT_USAGE
    except typer.Abort:
        return EXIT_INTERRUPTED
    except SystemExit as end:
        # Typer ends a command whose reader has gone with exit code 1; that is no failure.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise


def _complain_of_usage(message: str, context: typer.Context | None) -> None:
    if context is not None and message == context.get_help():
        # A group without a command (`letta memory`): its help is the message.
        sys.stderr.write(f"{message}\n")
    else:
        complain(message, f"see {context.command_path if context is not None else 'letta'} --help")


def _never_refuse_a_character() -> None:
    """A terminal's narrow encoding (LC_ALL=C, PYTHONIOENCODING=gbk) must not stop an answer."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
