"""The console script, and `python -m pilotfish.cli` where that is not on the path.

A client's installation has neither the services nor what this command line is made of: it says so in one line.
"""

from __future__ import annotations

from pilotfish.installation import needed_for


def main() -> None:
    """Run the command line, which ends the process itself."""
    with needed_for("the command line"):
        from pilotfish.cli.main import main as run
    run()


if __name__ == "__main__":
    main()
