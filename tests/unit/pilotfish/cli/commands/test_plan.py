"""`pilotfish plan` as a person uses it."""

import json
from pathlib import Path

from typer.testing import CliRunner

from pilotfish.cli.main import app

FAST = [
    "plan",
    "--prompt-tokens",
    "100",
    "--output-tokens",
    "50",
    "--ahead-tokens",
    "0",
    "-k",
    "2",
]


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*FAST, *arguments], env={"COLUMNS": "120"})
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


def test_without_a_file() -> None:
    code, output, _ = run("--profile", "a100-70b", "--acceptance", "0.8", "--rate", "10")
    assert code == 0
    assert "best" in output
    assert "target replicas" in output


def test_json() -> None:
    code, output, _ = run("--json", "--targets", "2", "--drafters", "0", "--acceptance", "0.9,0.7")
    assert code == 0
    plan = json.loads(output)
    assert plan["conditions"]["acceptance"] == "0.9, 0.7 by position"
    assert plan["fleets"][0]["num_targets"] == 2
    places = {(row["drafter"], row["place"]) for row in plan["places"]}
    assert {("EAGLE-3 head", "target"), ("EAGLE-3 head", "pool"), ("1B model", "pool"), ("", "none")} == places


def test_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [f'{{"timestamp": {500 * i}, "input_length": 40, "output_length": 20}}' for i in range(8, -1, -1)]
    path.write_text("\n".join(lines))
    code, output, _ = run("--trace", str(path), "--targets", "1", "--json")
    assert code == 0
    assert json.loads(output)["conditions"]["rate"] == "2 requests/s"
    path.write_text("\n".join([*lines, '{"timestamp": 1}']))
    code, _, error = run("--trace", str(path), "--targets", "1")
    assert code == 1
    assert "line 10" in error
