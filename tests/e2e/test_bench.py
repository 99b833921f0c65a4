"""`pilotfish bench` with a stack of its own, on emulated hardware."""

import json
from pathlib import Path

import psutil
from typer.testing import CliRunner

from pilotfish.cli.main import app


def test_it_starts_what_it_needs_and_every_text_is_plain_decodings(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Repeat: the small fish swims ahead of the shark, the small fish swims ahead of the shark.\n")
    arguments = ["--prompts", str(prompts), "--proposers", "draft", "-k", "4", "--max-tokens", "24"]
    # Whether a draft comes in time is another matter.
    settings = ("emulation.profile=instant", "orchestrator.speculation.draft_deadline_ms=10000")
    arguments += [part for setting in settings for part in ("--set", setting)]
    before = set(psutil.Process().children(recursive=True))  # of tests that ran in this process before
    result = CliRunner().invoke(app, ["bench", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    rows = {row["arm"]: row for row in report["rows"]}
    assert set(rows) == {"plain", "draft K=4", "draft auto"}
    for row in rows.values():
        assert row["num_identical"] == row["num_answers"]
    drafts = rows["draft K=4"]["drafts"]
    assert drafts["num_accepted_tokens"] > 0
    assert drafts["tokens_per_step"] > 1
    assert set(psutil.Process().children(recursive=True)) <= before
