"""How commands fail: exit codes and messages, never tracebacks."""

import pytest
import typer

from pilotfish.cli.errors import fail_on_error
from pilotfish.errors import PilotfishError, UnavailableError


@fail_on_error()
def command(error: BaseException | None) -> str:
    if error is not None:
        raise error
    return "done"


def test_returns_what_the_command_returns() -> None:
    assert command(None) == "done"


def test_an_error_is_one_line_on_stderr_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_info:
        command(UnavailableError("nobody is [there]\n  at all"))
    assert exit_info.value.exit_code == 1
    output = capsys.readouterr()
    assert output.err == "error: nobody is [there] at all\n"
    assert output.out == ""


def test_a_message_is_never_empty(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        command(PilotfishError())
    assert capsys.readouterr().err == "error: PilotfishError\n"


def test_ctrl_c_is_exit_code_130_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_info:
        command(KeyboardInterrupt())
    assert exit_info.value.exit_code == 130
    assert capsys.readouterr().err == ""


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        command(ZeroDivisionError())
