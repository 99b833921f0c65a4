"""`pilotfish up`: three plain processes and what happens when one is killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from pilotfish.cli.commands import demo
from pilotfish.cli.main import app

pytestmark = pytest.mark.model

SERVICES = ("target_service", "draft_service", "orchestrator")
PROMPT = "Repeat: the small fish swims ahead of the shark, the small fish swims ahead of the shark."


def answer(address: str, *options: str) -> dict:
    arguments = ["generate", PROMPT, "--address", address, "--json", "-n", "24", "--temperature", "0", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_each_service_says_once_that_it_is_ready(up) -> None:
    assert up.address
    for service in SERVICES:
        assert sum(f"{service} ready on" in line for line in up.lines) == 1


def test_the_demo_compares_what_is_served(up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MAX_TOKENS", 8)
    monkeypatch.setattr(demo, "NUM_REPEATS", 1)
    result = CliRunner().invoke(app, ["demo", "--set", f"orchestrator.port={up.address.rpartition(':')[2]}"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("same") == len(demo.PROMPTS) + 1
    assert "no:" not in result.stdout
    assert "Over all categories:" in result.stdout


def test_ctrl_c_ends_an_answer_without_a_traceback(up) -> None:
    argv = [sys.executable, "-u", "-m", "pilotfish.cli", "generate", "1 2 3 4 5 6 7 8", "--raw", "-n", "4000"]
    generate = subprocess.Popen(
        [*argv, "-t", "0", "--address", up.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert generate.stdout is not None
    assert generate.stdout.read(1)
    generate.send_signal(signal.SIGINT)
    _, errors = generate.communicate(timeout=60)
    assert generate.returncode == 130
    assert b"Traceback" not in errors


def test_a_second_up_on_the_same_address_is_refused(up) -> None:
    port = up.address.rpartition(":")[2]
    result = CliRunner().invoke(app, ["up", "--set", f"orchestrator.port={port}"])
    assert result.exit_code == 1
    assert "Pilotfish already serves" in result.stderr


def test_requests_outlive_the_draft_service_which_comes_back(up) -> None:
    expected = answer(up.address, "--speculation", "off")["token_ids"]
    lines_before = len(up.lines)
    up.descendant(" draft_service --config").kill()
    assert answer(up.address, "--speculation", "on")["token_ids"] == expected
    up.wait_for("requests go on without it", after=lines_before)
    up.wait_for("draft_service ready on", after=lines_before)


def test_nothing_is_left_when_up_itself_is_killed(up) -> None:
    """The last that asks it."""
    assert any("pilotfish.engine.process.worker" in " ".join(each.cmdline()) for each in up.descendants())
    assert len(up.descendants()) > len(SERVICES)
    up.stop(signal.SIGKILL)
    assert not up.left()


def test_a_killed_target_is_started_again(start_up: Callable) -> None:
    up = start_up("--emulate", "instant")
    expected = answer(up.address, "--speculation", "off")["token_ids"]
    lines_before = len(up.lines)
    up.descendant(" target_service --config").kill()
    # A request waits for a target replica (orchestrator.connect_timeout_s).
    assert answer(up.address, "--speculation", "off")["token_ids"] == expected
    up.wait_for("requests wait for it", after=lines_before)
    up.wait_for("target_service ready on", after=lines_before)
    assert up.stop(signal.SIGINT) == 0
    assert up.lines[-1] == "stopped"
    assert not up.left()


def test_ctrl_c_while_starting_leaves_no_process(start_up: Callable) -> None:
    up = start_up("--emulate", "instant")
    up.wait_for("ready on")
    assert up.stop(signal.SIGTERM) == 0
    assert not up.left()
