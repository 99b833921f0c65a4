"""The demo, over a Pilotfish that runs already."""

import io

from rich.console import Console

from pilotfish.cli.commands.demo import compare


def test_comparing_two_prompts_over_a_running_pilotfish(address: str) -> None:
    console = Console(file=io.StringIO(), width=140)
    compare(address, console)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert output.count("yes") == 2
    assert "emulated hardware" in output
