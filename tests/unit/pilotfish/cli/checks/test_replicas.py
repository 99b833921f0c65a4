"""Each configured replica is asked who it is."""

import asyncio

from pilotfish.cli.checks.finding import Severity
from pilotfish.cli.checks.replicas import check_replicas
from pilotfish.config import load_config
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from target_service.server import start_target


def engine(fingerprint: str) -> EmulatedEngine:
    model = HashLanguageModel(vocab_size=32, first_token_id=2)
    return EmulatedEngine("target", language_model=model, max_context_tokens=64, tokenizer_fingerprint=fingerprint)


async def verdicts(fingerprints: list[str], absent: list[str]) -> list[tuple[str, Severity, str]]:
    """Of targets with these fingerprints, and of absent replicas of these pools."""
    servers = [await start_target(load_config(overrides=["target.port=0"]), engine=engine(of)) for of in fingerprints]
    try:
        addresses = {"target": [server.address for server in servers], "draft": []}
        for pool in absent:
            addresses[pool].append("127.0.0.1:1")
        overrides = [f"orchestrator.{pool}_addresses={named}" for pool, named in addresses.items()]
        findings = await asyncio.to_thread(check_replicas, load_config(overrides=overrides))
    finally:
        for server in servers:
            await server.drain_and_stop(0)
    return [(finding.check, finding.verdict, finding.found) for finding in findings]


async def test_a_replica_that_answers_is_well_and_absent_ones_are_told() -> None:
    target, lost, draft = await verdicts(["a" * 64], ["target", "draft"])
    assert target[1] is Severity.OK
    assert "serves" in target[2]
    assert lost[:2] == ("target replica", Severity.PROBLEM)
    assert draft[:2] == ("draft replica", Severity.WARNING)


async def test_targets_with_unlike_tokenizers_are_a_problem() -> None:
    assert [verdict for _, verdict, _ in await verdicts(["a" * 64, "b" * 64], [])] == [Severity.PROBLEM] * 2
