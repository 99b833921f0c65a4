"""Colours are for terminals that have them and for people who want them."""

import io

import pytest
from rich.console import Console

from pilotfish.cli.console import error_console, output_console, shows_colours


def on_terminal(**options: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_colours_are_for_terminals_that_have_them_and_people_who_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shows_colours(on_terminal())
    assert not shows_colours(Console(file=io.StringIO()))
    assert not shows_colours(on_terminal(no_color=True))
    assert output_console(no_color=True).no_color
    assert error_console(no_color=True).no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_colours(on_terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_colours(on_terminal())
