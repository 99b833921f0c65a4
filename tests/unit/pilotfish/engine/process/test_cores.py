"""Cores under a container's CPU limit."""

import os
from pathlib import Path

import pytest

from pilotfish.engine.process.cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def cores(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    """Of a process in these groups, with these files below /sys/fs/cgroup."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content + "\n")
    (tmp_path / "self").write_text(membership)
    return usable_cores(tmp_path, tmp_path / "self")


@pytest.mark.parametrize(
    ("limit", "expected"), [("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1), ("max 100000", 8)]
)
def test_a_container_with_version_2(limit: str, expected: int, tmp_path: Path) -> None:
    assert cores(tmp_path, "0::/\n", {"cpu.max": limit}) == expected


def test_the_tightest_group_around_it_counts(tmp_path: Path) -> None:
    files = {"pods/cpu.max": "300000 100000", "pods/a/cpu.max": "max 100000", "cpu.max": "700000 100000"}
    assert cores(tmp_path, "0::/pods/a\n", files) == 3
    assert cores(tmp_path, "0::/elsewhere\n", {}) == 7


def test_version_1(tmp_path: Path) -> None:
    membership = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n"
    files = {"cpu,cpuacct/cpu.cfs_quota_us": "400000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    assert cores(tmp_path, membership, files) == 4
    assert cores(tmp_path, membership, {"cpu,cpuacct/cpu.cfs_quota_us": "-1"}) == 8


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "absent") == 8
