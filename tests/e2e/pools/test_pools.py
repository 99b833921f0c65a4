"""The pools on a cluster of labelled nodes: placement, scaling, a lost node, an update, and no failed request.

One run of benchmarks/pools.py; each test reads a part of what it says.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(2400)]

ROOT = Path(__file__).resolve().parents[3]
RUN_TIMEOUT_S = 900.0


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the benchmark reports."""
    path = tmp_path_factory.mktemp("pools") / "pools.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "pools.py"), "--quick", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    return json.loads(path.read_text())


def row(run: dict[str, Any], event: str) -> dict[str, Any]:
    (found,) = [row for row in run["rows"] if row["event"].startswith(event)]
    return found


def check(run: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [check for check in run["checks"] if check["name"] == name]
    return found


def test_every_replica_is_on_a_node_of_its_pool(run: dict[str, Any]) -> None:
    assert check(run, "misplaced replicas")["holds"]
    assert row(run, "placement of the draft pool")["replicas"] == "draft-a"
    assert row(run, "placement of the orchestrator pool")["replicas"] == "head"


@pytest.mark.parametrize(
    ("event", "replicas"),
    [
        ("scale-out", "2 target 2 draft"),
        ("target node lost", None),  # its run waits for two of each; the pool may shrink after that
        ("scale-in", "1 target 1 draft"),
        ("rolling update", "1 target 1 draft"),
    ],
)
def test_no_request_fails_through(run: dict[str, Any], event: str, replicas: str | None) -> None:
    happened = row(run, event)
    assert happened["failed"] == 0, [each["event"] for each in run["rows"] if each["event"].startswith("problem")]
    assert happened["requests"] > 0
    assert replicas is None or happened["replicas"] == replicas


def test_no_request_fails_at_all(run: dict[str, Any]) -> None:
    checked = check(run, "failed requests")
    assert checked["holds"], checked
