"""The GPU's benchmark runs where there is none, with a tiny model; its times mean nothing then."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu.py"
TOKEN_BYTES = 8 * 2 * 2 * 16 * 2
"""Keys and values of the shape `tiny`: eight layers, two heads of 16, bfloat16."""


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--shape", "tiny", "--quick", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_the_mixture_counts_the_keys_of_every_text(tmp_path: Path) -> None:
    done = run("--stages", "mixture", "--json", str(tmp_path / "result.json"))
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads((tmp_path / "result.json").read_text())["rows"] if row["stage"] == "mixture"]
    assert [(row.get("sequences"), row.get("kv_bytes")) for row in rows] == [
        (63, 63 * 300 * TOKEN_BYTES),
        (64, (63 * 300 + 131_072) * TOKEN_BYTES),
    ], done.stderr
    assert all(row["ms"] > 0 for row in rows)


@pytest.mark.parametrize("options", [["--stages", "mixtures"], ["--shape", "llama"]])
def test_a_stage_or_shape_that_is_not_there_is_refused_with_those_that_are(options: list[str]) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert "invalid choice" in done.stderr
