"""`pilotfish bench load` against a running Pilotfish over emulated engines, and what it refuses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pilotfish.cli.main import app

FEW = ("--prompt-tokens", "uniform:8-24", "--output-tokens", "12", "--requests", "6")
"""Options of a short run."""


def load(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "load", *arguments])


def test_the_closed_loop_reports_every_mode_at_every_concurrency(address: str) -> None:
    result = load("--address", address, "-n", "1,4", "--modes", "off,on,auto", "--slo", "e2e:60000", "--json", *FEW)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    points = {(point["load_value"], point["mode"]): point for point in report["points"]}
    assert list(points) == [(value, mode) for value in (1, 4) for mode in ("off", "on", "auto")]
    for point in points.values():
        assert (point["num_requests"], point["num_failed"], point["errors"]) == (6, 0, {})
        assert point["goodput_rps"] == point["achieved_rps"] > 0
        assert point["offered_rps"] is None
        assert 0 < point["ttft_ms"]["p50"] <= point["ttft_ms"]["p99"] <= point["e2e_ms"]["max"]
        assert point["queue_ms"]["p50"] > 0
    assert points[1, "off"]["drafts"]["num_draft_tokens"] == 0
    assert points[1, "on"]["drafts"]["num_accepted_tokens"] > 0
    assert points[1, "on"]["throughput_ratio"] > 0
    assert points[1, "off"]["mean_in_flight"] == pytest.approx(1, abs=0.2)
    assert points[4, "off"]["mean_in_flight"] == pytest.approx(4, abs=0.8)
    assert "EMULATED" in report["conditions"]["model"]


def test_the_open_loop_offers_its_rate_and_tells_both_clocks(address: str, tmp_path: Path) -> None:
    page, details = tmp_path / "report.html", tmp_path / "details.jsonl"
    arguments = ("--rate", "40", "--modes", "auto", "--warm-up", "2", "--html", str(page), "--details", str(details))
    result = load("--address", address, "--json", *arguments, *FEW)
    assert result.exit_code == 0, result.output
    (point,) = json.loads(result.stdout)["points"]
    assert point["offered_rps"] > 0
    assert point["ttft_ms"]["p50"] >= point["ttft_from_send_ms"]["p50"]
    assert point["client"]["schedule_lag_ms"]["p50"] >= 0
    assert "<svg" in page.read_text()
    lines = [json.loads(line) for line in details.read_text().splitlines()]
    assert [line["index"] for line in lines] == [2, 3, 4, 5, 6, 7]
    assert all(line["num_output_tokens"] == 12 for line in lines)
    # An engine that answers at once may send a whole answer in one message, which has no gaps.
    assert 0 < max(len(line["itl_ms"]) for line in lines) < 12
    assert all(8 <= line["num_prompt_tokens"] <= 24 for line in lines)


def test_a_trace_is_replayed_with_its_lengths(address: str, tmp_path: Path) -> None:
    path, details = tmp_path / "trace.jsonl", tmp_path / "details.jsonl"
    entries = [{"timestamp": 20 * index, "input_length": 9 + index, "output_length": 3 + index} for index in range(4)]
    path.write_text("\n".join(json.dumps(entry) for entry in reversed(entries)))
    arguments = ("--trace", str(path), "--trace-speed", "2", "--modes", "off", "--details", str(details))
    result = load("--address", address, "--json", *arguments)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in details.read_text().splitlines()]
    assert [(line["num_prompt_tokens"], line["num_output_tokens"]) for line in lines] == [
        (9, 3),
        (10, 4),
        (11, 5),
        (12, 6),
    ]
    assert [line["due_ms"] for line in lines] == pytest.approx([0, 10, 20, 30])


def test_the_table_names_loads_modes_and_failures_and_the_exit_status_does_not_judge(
    address: str, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    # The second one is longer than the context of 512.
    prompts.write_text("short\n" + "long " * 200)
    result = load("--address", address, "-n", "2", "--prompts", str(prompts), "--no-color", *FEW[2:])
    assert result.exit_code == 0, result.output
    assert "2 in flight" in result.stdout
    assert "3/6" in result.stdout
    assert "off, 2 in flight: 3 failed with INVALID_ARGUMENT: the prompt has" in result.stdout


def test_without_a_load_a_few_concurrencies_are_swept(address: str) -> None:
    result = load("--address", address, "--modes", "auto", "--json", "--output-tokens", "2", "--requests", "2")
    assert [point["load_value"] for point in json.loads(result.stdout)["points"]] == [1, 4, 16]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--slo", "ttft"), "needs a limit in milliseconds"),
        (("--goodput", "x:1"), "known are ttft, tpot, itl, e2e"),
        (("--modes", "off,fast"), "name some of off, on, auto, each once"),
        (("--modes", "on,on"), "each once"),
        (("--concurrency", "x"), "no list of numbers"),
        (("--rate", "-1"), "rate must be above 0"),
        (("--output-tokens", "many"), "no length distribution"),
        (("--trace", "/no/such.jsonl"), "cannot read the trace /no/such.jsonl"),
        (("--html", "/no/such/folder/x.html"), "there is no folder /no/such/folder"),
        (("--details", "/no/such/folder/x"), "there is no folder /no/such/folder"),
        (("--address", "127.0.0.1:1", "--emulate", "a100-70b"), "--address names one that runs"),
        (("--emulate", "a1000"), "no profile 'a1000'"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(arguments: tuple[str, ...], message: str) -> None:
    result = load(*arguments)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--proposer", "magic"), "no proposer magic; it has draft, ngram"),
        (("--output-tokens", "fixed:500"), "at least 628 tokens together; emulated takes 512"),
    ],
)
def test_what_the_running_one_cannot_do_is_said(address: str, arguments: tuple[str, ...], message: str) -> None:
    result = load("--address", address, *arguments)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


def test_options_of_bench_before_load_are_refused_not_ignored() -> None:
    result = CliRunner().invoke(app, ["bench", "--repeats", "2", "load"])
    assert result.exit_code == 1
    assert "options of `load` come after it, but repeats came before" in " ".join(result.stderr.split())


def test_both_commands_have_help() -> None:
    for arguments in (["bench", "--help"], ["bench", "load", "--help"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0
        assert "Usage" in result.stdout
