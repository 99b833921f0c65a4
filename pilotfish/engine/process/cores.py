"""How many cores this process may keep busy: fewer than it sees, where a container's limit says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Cores of the affinity mask, and no more than the CPU quota of the control groups (versions 1 and 2).

    Threads beyond a quota do not run slower but stand still, all of them, for the rest of each period.
    """
    return max(1, int(min([len(os.sched_getaffinity(0)), *_quotas(cgroups, membership)])))


def _quotas(cgroups: Path, membership: Path) -> Iterator[float]:
    """Quotas in cores, of this process's groups and of those around them."""
    try:
        lines = membership.read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", maxsplit=2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = Path(name.lstrip("/"))
        for folder in (group, *group.parents):
            # A container sees its own group at the root, whatever its name outside. Version 2, then 1.
            files = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
            limits = [word for file in files for word in _read(cgroups / controllers / folder / file).split()]
            if len(limits) == 2 and all(map(str.isdigit, limits)) and int(limits[1]):
                yield int(limits[0]) / int(limits[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
