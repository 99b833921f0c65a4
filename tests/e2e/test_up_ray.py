"""`pilotfish up --ray`: the Ray Serve application and what happens when a replica is killed."""

import json
import signal
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from pilotfish.cli.main import app

pytestmark = [pytest.mark.model, pytest.mark.ray, pytest.mark.timeout(300)]

PROMPT = "Repeat: the small fish swims ahead of the shark, the small fish swims ahead of the shark."


@pytest.fixture(scope="module")
def up(start_up: Callable):
    return start_up("--ray")


def answer(address: str, *options: str) -> dict:
    arguments = ["generate", PROMPT, "--address", address, "--json", "-n", "24", "--temperature", "0", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_services_become_ready_and_speculate(up) -> None:
    plain = answer(up.address, "--speculation", "off")
    speculative = answer(up.address, "--speculation", "on")
    assert speculative["speculation"]["num_rounds"] > 0
    assert speculative["token_ids"] == plain["token_ids"]
    for service in ("target_service", "draft_service", "orchestrator"):
        assert sum(f"{service} ready on" in line for line in up.lines) == 1


def test_requests_outlive_the_draft_replica(up) -> None:
    expected = answer(up.address, "--speculation", "off")["token_ids"]
    up.descendant("ServeReplica:pilotfish:draft").kill()
    assert answer(up.address, "--speculation", "on")["token_ids"] == expected


def test_a_killed_target_replica_is_replaced(up) -> None:
    expected = answer(up.address, "--speculation", "off")["token_ids"]
    up.descendant("ServeReplica:pilotfish:target").kill()
    # A request waits for a target replica (orchestrator.connect_timeout_s).
    assert answer(up.address, "--speculation", "off")["token_ids"] == expected


def test_ctrl_c_leaves_no_process(up) -> None:
    assert up.address
    assert up.descendants()
    assert up.stop(signal.SIGINT) == 0
    assert up.lines[-1] == "stopped"
    assert not up.left()
