"""The benchmark of services on one GPU runs where there is none, with tiny models; its times mean nothing then."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu_pools.py"


def test_rows_have_what_was_planted_beside_the_formula(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--shape", "tiny", "--quick", "--loads", "1", "--seconds", "1", "--limit", "200"]
    options += ["--arms", "plain", "pool", "ahead", "head", "--json", str(tmp_path / "result.json")]
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert [row["arm"] for row in rows] == ["plain", "pool", "ahead", "head"], done.stderr
    assert not [row for row in rows if "failed" in row], done.stderr
    assert all(row["tokens_per_s"] > 0 and row["ratio"] > 0 for row in rows)
    for row in rows[1:3]:
        assert row["drafts_per_round"] > 4.5
        assert abs(row["formula_tokens"] - (1 - 0.8**6) / (1 - 0.8)) < 1e-6
        assert 1 < row["tokens_per_round"] < 6
