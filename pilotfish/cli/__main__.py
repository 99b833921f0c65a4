"""The console script, and `python -m pilotfish.cli` where that is not on the path.

A client's installation has neither the services nor what this command line is made of: it says so in one line.
"""

from __future__ import annotations

import sys

EXIT_FAILURE = 1
OWN_PACKAGES = ("pilotfish", "draft_service", "target_service", "orchestrator")


def main() -> int | None:
    """Run the command line, which ends the process itself."""
    try:
        from pilotfish.cli.main import main as run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", *OWN_PACKAGES):
            raise  # a fault of ours
        print(
            f"error: this installation is a client's: the command line needs {missing} and the other packages of the "
            "services: pip install 'pilotfish[serve]'",
            file=sys.stderr,
        )
        return EXIT_FAILURE
    run()
    return None


if __name__ == "__main__":
    sys.exit(main())
