"""The console script, and `python -m pilotfish.cli` where that is not on the path.

A client's installation has neither the services nor what this command line is made of: it says so in one line.
"""

from __future__ import annotations

import io
import sys

from pilotfish.installation import needed_for


def main() -> None:
    """Run the command line, which ends the process itself."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that is not UTF-8 shows `?`, not a traceback
            stream.reconfigure(errors="replace")
    try:
        with needed_for("the command line"):
            from pilotfish.cli.main import main as run
    except KeyboardInterrupt:  # the imports take a second
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
