"""What the comparison of predictions with measurements is asked for."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "examine.py"


def test_a_drafter_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    command = [sys.executable, str(SCRIPT), "--only", "eagle3", "eagle4", "--network-ms", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("--only: there is no eagle4. There are, with these options: eagle3, eagle3 tree, ")
    assert line.endswith("eagle3 remote")
