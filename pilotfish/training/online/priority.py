"""The lowest priority that a process can give itself."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

LOWEST = 19
_AUTOGROUP = Path("/proc/self/autogroup")


def yield_to_others() -> None:
    """Let every other process have the processor first. Of this thread and those that it starts."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)  # os.nice would add to what it has from its parent
    if os.getsid(0) == os.getpid():
        # Linux divides the processor among sessions first, and niceness counts within one (sched(7), autogroup): in a
        # session of its own, as `pilotfish up` starts it, the trainer would get as much as the target.
        with contextlib.suppress(OSError):  # not there, or not to be changed
            _AUTOGROUP.write_text(str(LOWEST))
