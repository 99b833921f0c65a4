"""`pilotfish train` tells what is wrong in one line, before it works."""

from rich.console import Console

from pilotfish.cli.train_progress import TrainProgress
from pilotfish.training.request import Stage


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
