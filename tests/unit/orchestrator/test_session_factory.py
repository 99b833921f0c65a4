"""What a session is made of, by its request and the configuration."""

from __future__ import annotations

import pytest

from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.rounds.round_log import RoundLog
from orchestrator.session_factory import SessionFactory
from pilotfish.config import Config, OrchestratorConfig, SpeculationConfig
from pilotfish.types import SamplingParams

COPIED = (1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("said", "rules", "most"),
    [(None, (), 6), (3, (), 3), (3, ((1, 8, 2),), 0), (None, ((1, 8, 2),), 0)],
)
def test_what_a_lookup_before_a_resting_pool_drafts_is_within_what_request_and_operator_say(
    memory_pool, memory_link, toy_tokenizer, said, rules, most: int
) -> None:
    speculation = SpeculationConfig(lookup="suffix", num_speculative_tokens_per_batch_size=rules)
    targets, link = memory_pool(memory_link("target")), memory_link("draft")
    targets.max_draft_tokens = 6
    config = Config(orchestrator=OrchestratorConfig(speculation=speculation))
    request = GenerationRequest(
        prompt_token_ids=COPIED,
        sampling=SamplingParams(temperature=0, max_tokens=40),
        speculation=SpeculationOptions(mode="auto", proposer="draft", num_speculative_tokens=said),
        num_speculative_tokens=said or 5,
    )
    factory = SessionFactory(config, toy_tokenizer, targets, memory_pool(link))
    session = factory.session(request, link.model, RoundLog())
    assert session.drafter.glance(session.sequence, 0).token_ids == (5, 6, 7, 8, 1, 2)[:most]
