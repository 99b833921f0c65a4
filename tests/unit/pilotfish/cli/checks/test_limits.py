"""What `pilotfish doctor` says of a container's limits."""

import tempfile
from pathlib import Path

import pytest

from pilotfish.cli.checks import limits
from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.cli.checks.limits import check_cores, check_limits
from pilotfish.config import Config, load_config


def findings(config: Config, shared_memory: Path = Path("/")) -> dict[str, CheckFinding]:
    return {finding.check: finding for finding in check_limits(config, shared_memory)}


def test_a_quota_is_told_and_a_single_core_is_few() -> None:
    assert check_cores(4, 64) == CheckFinding("cores", Severity.OK, "4 of 64 may be used")
    assert check_cores(8, 8).found == "8"
    assert check_cores(1, 64).verdict is Severity.WARNING


def test_no_writable_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(Config())["temporary folder"].verdict is Severity.OK

    def refuse() -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    finding = findings(Config())["temporary folder"]
    assert finding.verdict is Severity.PROBLEM
    assert "--tmpfs /tmp" in finding.advice


def test_ranks_need_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "shared memory" not in findings(Config())
    ranks = load_config(overrides=["target.tensor_parallel_size=2"])
    monkeypatch.setattr(limits, "NEEDED_SHARED_BYTES", 2**60)
    finding = findings(ranks)["shared memory"]
    assert (finding.verdict, "--shm-size" in finding.advice) == (Severity.PROBLEM, True)
    monkeypatch.setattr(limits, "NEEDED_SHARED_BYTES", 1)
    assert findings(ranks)["shared memory"].verdict is Severity.OK
