"""`pilotfish bench load` with a stack of its own over emulated hardware."""

import json

import psutil
from typer.testing import CliRunner

from pilotfish.cli.main import app


def test_it_starts_what_it_needs_and_no_mode_changes_a_text() -> None:
    arguments = ["--emulate", "instant", "-n", "8", "--modes", "off,on", "--requests", "16", "--output-tokens", "24"]
    # Whether a draft comes in time is another matter.
    arguments += ["--set", "orchestrator.speculation.draft_deadline_ms=10000"]
    result = CliRunner().invoke(app, ["bench", "load", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    off, on = json.loads(result.stdout)["points"]
    assert (off["num_failed"], on["num_failed"]) == (0, 0)
    assert (on["num_compared"], on["num_differing"]) == (16, 0)
    assert on["drafts"]["num_accepted_tokens"] > 0
    assert not psutil.Process().children(recursive=True)
