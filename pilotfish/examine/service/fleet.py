"""What a running orchestrator's controller has measured: the part of `GET /fleet` that is shown. Torch-free."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Sequence

import msgspec

from pilotfish.client.access import SYSTEM_CA, Access

_TIMEOUT_S = 5.0


class FleetState(msgspec.Struct, frozen=True):
    """One proposer on one target; see orchestrator/http/operations/fleet.py."""

    replica_id: str
    proposer: str
    state: str
    """on, off or undecided."""
    num_draft_tokens: int
    """The best K; 0: none, or the target drafts by itself."""
    expected_gain: float | None
    measured_gain: float | None
    acceptance: Sequence[float]
    """Probability that a draft token stands if those before it do, by position."""


class FleetKind(msgspec.Struct, frozen=True):
    """Acceptance of one kind of requests since the start."""

    kind: str
    num_draft_tokens: int
    num_accepted_tokens: int


class FleetDefaults(msgspec.Struct, frozen=True):
    """What a request gets that does not say how to speculate."""

    mode: str
    proposer: str
    num_speculative_tokens: int


class Fleet(msgspec.Struct, frozen=True):
    """What is kept of it."""

    defaults: FleetDefaults
    kinds: Sequence[FleetKind]
    states: Sequence[FleetState]


class _Controller(msgspec.Struct):
    states: list[FleetState]


class _Body(msgspec.Struct):
    defaults: FleetDefaults
    kinds: list[FleetKind]
    controller: _Controller


def read_fleet(address: str, port: int, access: Access) -> tuple[Fleet | None, str]:
    """The fleet of an orchestrator whose HTTP API listens on a port of the host of its address; or None, and why."""
    host = address.rpartition(":")[0].strip("[]")
    where = f"GET /fleet at {host}:{port}"
    if port <= 0:
        return None, "orchestrator.http.port names no port of its HTTP API: /fleet was not asked"
    try:
        status, body = _get(host, port, access)
        if status != http.client.OK:
            return None, f"{where} answers {status}: may this key read it?"
        found = msgspec.json.decode(body, type=_Body)
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        return None, f"{where} gave nothing ({error}): name its HTTP port (--set orchestrator.http.port=N)"
    return Fleet(found.defaults, found.kinds, found.controller.states), ""


def _get(host: str, port: int, access: Access) -> tuple[int, bytes]:
    """Raises OSError and HTTPException."""
    connection: http.client.HTTPConnection
    if access.ca_file:
        context = ssl.create_default_context(cafile=None if access.ca_file == SYSTEM_CA else access.ca_file)
        if access.certificate_file:
            context.load_cert_chain(access.certificate_file, access.key_file)
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/fleet", headers=dict(access.metadata))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
