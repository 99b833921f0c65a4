"""`pilotfish health`: exit codes, output, and whom a role means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from pilotfish.cli.main import app
from pilotfish.config import InternalSecurityConfig
from pilotfish.rpc.link_security import LinkSecurity

runner = CliRunner()


def test_an_address_that_serves(address: str) -> None:
    result = runner.invoke(app, ["health", address])
    assert (result.exit_code, result.stdout) == (0, f"{address} readiness: SERVING\n")


def test_json_and_another_name(address: str) -> None:
    result = runner.invoke(app, ["health", address, "--service", "nonsense", "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["address"], report["service"], report["status"]) == (address, "nonsense", "SERVICE_UNKNOWN")
    assert report["latency_ms"] > 0


def test_nobody_there() -> None:
    result = runner.invoke(app, ["health", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stdout.startswith("127.0.0.1:1 readiness: UNREACHABLE (UNAVAILABLE: ")


def test_a_role_is_where_the_configuration_says(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    port = address.rpartition(":")[2]
    settings = ["--set", f"orchestrator.port={port}", "--set", "orchestrator.host=0.0.0.0"]
    assert runner.invoke(app, ["health", "orchestrator", *settings]).exit_code == 0
    monkeypatch.setenv("PILOTFISH_ROLE", "orchestrator")
    assert runner.invoke(app, ["health", *settings]).stdout == f"127.0.0.1:{port} readiness: SERVING\n"


@pytest.mark.parametrize("where", ["oracle", "127.0.0.1", "127.0.0.1:99999"])
def test_neither_role_nor_address(where: str) -> None:
    result = runner.invoke(app, ["health", where])
    assert result.exit_code == 2
    assert "is not HOST:PORT" in result.stderr


@pytest.fixture
def links(tmp_path: Path) -> InternalSecurityConfig:
    """Mutual TLS with certificates for `replica.pilotfish`."""
    authority = trustme.CA()
    issued = authority.issue_cert("replica.pilotfish")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    files = {"certificate": "chain.pem", "private_key": "key.pem", "ca": "ca.pem"}
    return InternalSecurityConfig(**{key: str(tmp_path / name) for key, name in files.items()})


@pytest.fixture
def replica(links: InternalSecurityConfig) -> Iterator[int]:
    """The port of a server that only members reach."""
    servicer = health.HealthServicer()
    servicer.set("readiness", health_pb2.HealthCheckResponse.SERVING)
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        port = server.add_secure_port("127.0.0.1:0", LinkSecurity(links).server_credentials)
        server.start()
        yield port
        server.stop(None).wait()


def test_a_replica_with_mutual_tls(links: InternalSecurityConfig, replica: int) -> None:
    settings = [f"target.port={replica}"]
    settings += [f"security.internal.{key}={getattr(links, key)}" for key in ("certificate", "private_key", "ca")]
    command = ["health", "target", *(part for setting in settings for part in ("--set", setting))]
    assert "UNREACHABLE" in runner.invoke(app, command).stdout  # the certificate is not for 127.0.0.1
    assert runner.invoke(app, [*command, "--tls-name", "replica.pilotfish"]).exit_code == 0
    assert runner.invoke(app, [*command, "--set", "security.internal.server_name=replica.pilotfish"]).exit_code == 0
