"""Addresses and proxies."""

import socket

import pytest

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.cli.checks.network import check_network, check_proxies
from pilotfish.config import load_config

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def check(*overrides: str) -> dict[str, CheckFinding]:
    return {finding.check: finding for finding in check_network(load_config(overrides=overrides))}


def test_a_port_that_another_program_has_is_a_problem_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        found = check("orchestrator.port=0", f"orchestrator.http.port={port}")
    assert found["address"].verdict is Severity.OK
    assert found["http address"].verdict is Severity.PROBLEM
    assert f"another program listens on 127.0.0.1:{port}" in found["http address"].found
    assert f"orchestrator.http.port={port + 1}" in found["http address"].advice


def test_a_pilotfish_that_runs_there_is_no_problem(address: str) -> None:
    found = check(f"orchestrator.port={address.rpartition(':')[2]}")
    assert found["address"].verdict is Severity.OK
    assert "already serves" in found["address"].found
    assert "http address" not in found


def test_a_proxy_that_would_be_asked_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_proxies("127.0.0.1").found == "none in the environment"
    monkeypatch.setenv("http_proxy", "http://ann:secret@proxy.example:3128")
    asked = check_proxies("127.0.0.1")
    assert asked.verdict is Severity.WARNING
    assert "http_proxy=http://proxy.example:3128" in asked.found
    assert "secret" not in asked.found
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert check_proxies("127.0.0.1").verdict is Severity.OK
