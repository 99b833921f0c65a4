"""`pilotfish plan --model` as a person uses it."""

import json

import pytest
from typer.testing import CliRunner

from pilotfish.cli.commands import plan_memory
from pilotfish.cli.main import app
from pilotfish.parallel.take_inventory import inventory_of


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that imports torch takes seconds; test_take_inventory starts one."""
    monkeypatch.setattr(plan_memory, "take_inventory", inventory_of)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", *arguments], env={"COLUMNS": "120"})
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


def test_a_70b_on_eight_gpus() -> None:
    code, output, _ = run("--model", "llama-3.1-70b", "--gpus", "8", "--json")
    assert code == 0
    plan = json.loads(output)
    assert plan["gpu_memory_gb"] == 80
    rows = {(row["weights"], row["num_ranks"]): row for row in plan["rows"]}
    assert sorted({count for _, count in rows}) == [1, 2, 4, 8]
    assert rows["bfloat16", 1]["num_kv_blocks"] == 0
    assert rows["bfloat16", 8]["weight_bytes"] == 17_640_734_720
    assert rows["bfloat16", 8]["kv_bytes_per_token"] == 80 * 2 * 128 * 2
    assert rows["int8 or fp8", 2]["num_kv_tokens"] > 200_000
