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
    """In cores, of this process's groups and of those around them."""
    try:
        lines = membership.read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", maxsplit=2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers else cgroups
        group = Path(name.lstrip("/"))
        for folder in (group, *group.parents):
            # A container sees its own group at the root, whatever its name outside.
            quota = _quota_v1(root / folder) if controllers else _quota_v2(root / folder)
            if quota is not None:
                yield quota


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
