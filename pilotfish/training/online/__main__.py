"""`python -m pilotfish.training.online --config FILE --set section.key=value`: the trainer in the foreground."""

from __future__ import annotations

import sys

from pilotfish.installation import needed_for

with needed_for("the trainer"):
    from pilotfish.training.online.service import main

if __name__ == "__main__":
    sys.exit(main())
