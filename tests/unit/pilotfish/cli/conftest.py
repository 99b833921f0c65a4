"""The command line's commands are built once: that takes longer than what most tests have them do."""

import functools
from collections.abc import Iterator

import pytest
import typer.main


@pytest.fixture(scope="package", autouse=True)
def _built_once() -> Iterator[None]:
    """For typer's CliRunner, which builds them for each call."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield
