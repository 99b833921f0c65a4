"""How commands fail: exit codes and messages, never tracebacks."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
import typer

from pilotfish.cli.errors import fail_on_error
from pilotfish.errors import UnavailableError


@fail_on_error()
def command(error: BaseException | None) -> str:
    if error is not None:
        raise error
    return "done"


def test_an_error_is_one_line_on_stderr_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_info:
        command(UnavailableError("nobody is [there]\n  at all"))
    assert exit_info.value.exit_code == 1
    output = capsys.readouterr()
    assert output.err == "error: nobody is [there] at all\n"
    assert output.out == ""


def test_what_belongs_to_another_user_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_info:
        command(PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/learning/lock"))
    assert exit_info.value.exit_code == 1
    assert capsys.readouterr().err == "error: cannot use /learning/lock: Permission denied\n"


def test_ctrl_c_is_exit_code_130_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as exit_info:
        command(KeyboardInterrupt())
    assert exit_info.value.exit_code == 130
    assert capsys.readouterr().err == ""


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        command(ZeroDivisionError())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        result = run(["config"], stdout=full)
    assert (result.returncode, result.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_a_reader_that_has_gone_is_no_reason_for_words() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = run(["config"], stdout=writer)
    finally:
        os.close(writer)
    assert result.returncode == 1
    assert result.stderr == ""


def test_closed_standard_streams_are_survived() -> None:
    code = "import os, sys; os.close(0); os.close(1); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", code, sys.executable, "-m", "pilotfish.cli"]
    result = subprocess.run([*command, "generate", "-"], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "standard input, which is closed" in result.stderr


def run(arguments: list[str], stdout: int | IO[str]) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: its standard output is the file."""
    command = [sys.executable, "-m", "pilotfish.cli", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
