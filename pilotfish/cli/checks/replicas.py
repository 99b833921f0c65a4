"""The configured replicas: whether each answers, and as what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.config import Config
from pilotfish.errors import ConfigError, PilotfishError
from pilotfish.messages import Event
from pilotfish.rpc.frames import Service
from pilotfish.rpc.handshake import Hello, Welcome
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.stream import MuxStream
from pilotfish.types import LoadReport

HANDSHAKE_TIMEOUT_S = 5.0


def check_replicas(config: Config) -> list[CheckFinding]:
    """One finding for each address, none where Ray or `pilotfish up` find the replicas."""
    addresses: list[tuple[Service, str]] = [
        *(("target", address) for address in config.orchestrator.target_addresses),
        *(("draft", address) for address in config.orchestrator.draft_addresses),
    ]
    if not addresses:
        return []
    try:
        security = LinkSecurity(config.security.internal)
    except ConfigError as error:
        return [CheckFinding("replicas", Severity.PROBLEM, f"they cannot be asked: {error}", "mend security.internal")]
    return asyncio.run(_ask_all(addresses, security))


async def _ask_all(addresses: Sequence[tuple[Service, str]], security: LinkSecurity) -> list[CheckFinding]:
    outcomes = await asyncio.gather(*(_ask(service, address, security) for service, address in addresses))
    targets = [outcome for (service, _), outcome in zip(addresses, outcomes, strict=True) if service == "target"]
    tokenizers = {welcome.model.tokenizer_fingerprint for welcome in targets if isinstance(welcome, Welcome)}
    return [
        _finding(service, address, outcome, tokenizers)
        for (service, address), outcome in zip(addresses, outcomes, strict=True)
    ]


async def _ask(service: Service, address: str, security: LinkSecurity) -> Welcome | PilotfishError:
    """Shakes hands as an orchestrator does, and leaves."""
    try:
        stream = await MuxStream.connect(
            address,
            service=service,
            hello=Hello(peer="doctor"),
            on_events=_ignore_events,
            on_load=_ignore_load,
            on_lost=_ignore_loss,
            security=security,
            timeout_s=HANDSHAKE_TIMEOUT_S,
        )
    except PilotfishError as error:
        return error
    await stream.close()
    return stream.welcome


def _finding(service: Service, address: str, outcome: Welcome | PilotfishError, tokenizers: set[str]) -> CheckFinding:
    check = f"{service} replica"
    # Without drafts requests are served, slower.
    severity = Severity.PROBLEM if service == "target" else Severity.WARNING
    if isinstance(outcome, PilotfishError):
        advice = f"is `python -m {service}_service` running there, with the same security.internal?"
        return CheckFinding(check, severity, f"{address}: {outcome}", advice)
    if tokenizers - {outcome.model.tokenizer_fingerprint}:
        found = f"{address} has another tokenizer ({outcome.model.model_id}) than the target"
        return CheckFinding(check, severity, found, "all replicas need models with the same tokenizer")
    emulated = ", emulated" if outcome.model.emulated else ""
    return CheckFinding(check, Severity.OK, f"{address} serves {outcome.model.model_id}{emulated}")


def _ignore_events(_: list[Event]) -> None:
    """No sequence is opened."""


def _ignore_load(_: LoadReport) -> None:
    """Nothing is asked of it."""


def _ignore_loss(_: PilotfishError) -> None:
    """Does nothing: the replica has answered before."""
