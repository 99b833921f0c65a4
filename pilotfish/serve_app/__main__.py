"""`python -m pilotfish.serve_app --config FILE`: the application on a private Ray of this machine.

Runs until SIGINT or SIGTERM; `pilotfish up` starts it so. It prints one line per service as it becomes ready, as the
services themselves do.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from pilotfish.config import load_config
from pilotfish.errors import PilotfishError
from pilotfish.serve_app.local import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pilotfish.serve_app", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value")
    parser.add_argument("--temp-dir", type=Path, required=True, help="for Ray's sockets and logs; short and absolute")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)  # Serve logs its every step
    try:
        run(load_config(arguments.config, arguments.set), arguments.temp_dir)
    except PilotfishError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
