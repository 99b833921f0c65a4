"""`pilotfish train` tells what is wrong in one line, before it works."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from pilotfish.cli.main import app
from pilotfish.cli.train_progress import TrainProgress
from pilotfish.training.stages import Stage


def train(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["train", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eagle3", "--epochs", "0"), "epochs is 0"),
        (("medusa", "--heads", "0"), "heads is 0"),
        (("draft", "--target", "no-such-model"), "no-such-model"),
    ],
)
def test_bad_input_is_one_red_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = train(*arguments, "--cache-dir", str(tmp_path))
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_unknown_method_is_a_usage_error() -> None:
    assert train("eagle2").exit_code == 2


def test_progress_is_a_few_plain_lines_without_a_terminal() -> None:
    console = Console(record=True, force_terminal=False, width=100)
    with TrainProgress(console) as progress:
        progress.stage(Stage.SYNTHESISE, 1000)
        for done in range(0, 1006, 5):  # the last conversation may end beyond the goal
            progress.progress(done, "note")
        progress.stage(Stage.TRAIN, 1, 0.5)
        progress.progress(1)
    lines = console.export_text().splitlines()
    assert lines[0] == "synthesise: 0% note"
    assert lines[-2:] == ["synthesise: 100% note", "train: 100%"]
    assert 10 <= len(lines) <= 14
