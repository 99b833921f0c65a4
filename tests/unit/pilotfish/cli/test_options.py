"""An address that cannot be one is refused before it is dialled."""

import pytest
import typer
from typer.testing import CliRunner

from pilotfish.cli.main import app
from pilotfish.cli.options import check_address


@pytest.mark.parametrize("address", ["127.0.0.1:50051", "host.example:1", "[::1]:65535", None])
def test_good_ones_pass(address: str | None) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize("address", ["host", "host:", ":50051", "host:0", "host:65536", "host:http"])
def test_others_are_told_what_one_looks_like(address: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"not HOST:PORT, such as 127\.0\.0\.1:50051"):
        check_address(address)


@pytest.mark.parametrize("command", [["generate", "hi"], ["chat"], ["bench"], ["bench", "load"]])
def test_every_command_checks_it(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--address", "foo"])
    assert result.exit_code == 2
    assert "HOST:PORT" in result.stderr
