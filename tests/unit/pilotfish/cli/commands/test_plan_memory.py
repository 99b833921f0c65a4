"""`pilotfish plan --model` as a person uses it."""

import json

from typer.testing import CliRunner

from pilotfish.cli.main import app


def test_a_70b_on_eight_gpus() -> None:
    result = CliRunner().invoke(app, ["plan", "--model", "llama-3.1-70b", "--gpus", "8", "--json"])
    assert result.exit_code == 0
    plan = json.loads(result.stdout)
    assert plan["gpu_memory_gb"] == 80
    rows = {(row["weights"], row["num_ranks"]): row for row in plan["rows"]}
    assert sorted({count for _, count in rows}) == [1, 2, 4, 8]
    assert rows["bfloat16", 1]["num_kv_blocks"] == 0
    assert rows["bfloat16", 8]["weight_bytes"] == 17_640_734_720
    assert rows["bfloat16", 8]["kv_bytes_per_token"] == 80 * 2 * 128 * 2
    assert rows["int8 or fp8", 2]["num_kv_tokens"] > 200_000
