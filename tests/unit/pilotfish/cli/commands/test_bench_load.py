"""`pilotfish bench load` against a running Pilotfish over emulated engines, and what it refuses."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from pilotfish.cli.main import app

FEW = ("--prompt-tokens", "uniform:8-24", "--output-tokens", "12", "--requests", "6")
"""Options of a short run."""


def load(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "load", *arguments])


def test_every_mode_is_reported_at_every_concurrency(address: str) -> None:
    result = load("--address", address, "-n", "1,4", "--modes", "off,on,auto", "--json", *FEW)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    points = {(point["concurrency"], point["mode"]): point for point in report["points"]}
    assert list(points) == [(value, mode) for value in (1, 4) for mode in ("off", "on", "auto")]
    for point in points.values():
        assert (point["num_requests"], point["num_failed"], point["errors"]) == (6, 0, {})
        assert point["requests_per_s"] > 0
        assert 0 < point["ttft_ms"]["p50"] <= point["ttft_ms"]["p99"] <= point["e2e_ms"]["max"]
        assert point["queue_ms"]["p50"] > 0
    assert points[1, "off"]["drafts"]["num_draft_tokens"] == 0
    assert points[1, "on"]["drafts"]["num_accepted_tokens"] > 0
    assert points[1, "on"]["throughput_ratio"] > 0
    assert "EMULATED" in report["conditions"]["model"]


def test_the_table_names_loads_modes_and_failures_and_the_exit_status_does_not_judge(
    address: str, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    # The second one is longer than the context of 512.
    prompts.write_text("short\n" + "long " * 200)
    result = load("--address", address, "-n", "2", "--prompts", str(prompts), "--no-color", *FEW[2:])
    assert result.exit_code == 0, result.output
    assert "3/6" in result.stdout
    assert "off, 2 in flight: 3 failed with INVALID_ARGUMENT: the prompt has" in result.stdout
