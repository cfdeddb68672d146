"""The `letta` command: answers `--version` before anything heavy is imported, else hands over to the CLI."""

from __future__ import annotations

import sys

from letta_code import __version__


def main() -> int:
    """Run the command line of this process; the result is its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"letta-code {__version__}\n")
        return 0
    try:
        from letta_code.cli.entry import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules are imported, too
        return 130


if __name__ == "__main__":
    sys.exit(main())
