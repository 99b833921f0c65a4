"""An emulated head in the draft pool or in the target, through the whole stack."""

from __future__ import annotations

import dataclasses

import pytest

from pilotfish.config import (
    Config,
    EmulationConfig,
    InTargetDrafterConfig,
    OrchestratorConfig,
    SpeculationConfig,
    TargetConfig,
)
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.messages import Propose
from tests.support.stack import running_stack

HEAD = EmulationConfig(profile="h100-70b-tp4", drafter="EAGLE-3 head")
CONFIG = Config(
    emulation=HEAD,
    target=TargetConfig(model="nobody/has-this"),
    orchestrator=OrchestratorConfig(
        speculation=SpeculationConfig(mode="on", num_speculative_tokens=4, draft_ahead="on", draft_deadline_ms=5000)
    ),
)
PLAIN = dataclasses.replace(
    CONFIG, orchestrator=OrchestratorConfig(speculation=SpeculationConfig(mode="off", draft_deadline_ms=5000))
)


async def test_it_drafts_with_features_and_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_stack(PLAIN) as stack:
        expected = await stack.ask(max_tokens=100, temperature=0.0)
    target, drafter = (start_emulated_engine(CONFIG, role) for role in ("target", "draft"))
    proposals: list[Propose] = []
    submit = drafter.core.submit

    def watch(command: object) -> None:
        if isinstance(command, Propose):
            proposals.append(command)
        submit(command)

    monkeypatch.setattr(drafter.core, "submit", watch)
    async with running_stack(CONFIG, target_engine=target, draft_engine=drafter) as stack:
        answered = await stack.ask(max_tokens=100, temperature=0.0)
        counters = stack.orchestrator.service.sessions.predraft.counters
    assert answered.token_ids == expected.token_ids
    assert answered.speculation.num_accepted_tokens > 50
    assert counters.num_prepared_tokens > 100
    assert {proposal.features.token_bytes for proposal in proposals if proposal.features} == {24_588}
    # Of every position once, up to the last verdict's.
    ends = [proposal.features.end_position for proposal in proposals if proposal.features]
    assert ends == sorted(set(ends))
    assert ends[-1] > 80


async def test_a_head_in_the_target_drafts_for_whoever_asks_for_no_other() -> None:
    target = dataclasses.replace(CONFIG.target, drafter=InTargetDrafterConfig(proposer="eagle3"))
    async with running_stack(PLAIN) as stack:
        expected = await stack.ask(max_tokens=100, temperature=0.0)
    async with running_stack(dataclasses.replace(CONFIG, target=target), with_draft=False) as stack:
        answered = await stack.ask(max_tokens=100, temperature=0.0)
    assert answered.token_ids == expected.token_ids
    assert answered.speculation.num_accepted_tokens > 50
