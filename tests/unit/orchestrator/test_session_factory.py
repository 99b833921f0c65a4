"""What a session is made of, by its request and the configuration."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.rounds.round_log import RoundLog
from orchestrator.session_factory import SessionFactory
from pilotfish.config import Config, OrchestratorConfig, SpeculationConfig
from pilotfish.messages import Propose
from pilotfish.types import Grammar, GrammarKind, Limits, SamplingParams, TreeRequest

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


@pytest.mark.parametrize(
    ("tree_nodes", "proposer", "grammar", "expected"),
    [
        # Steps of 1 to 9 rows take 10 to 13 ms.
        ("auto", "eagle3", None, TreeRequest(8, 4, pytest.approx(0.3 / 8))),
        ("auto", "eagle3", Grammar(GrammarKind.REGEX, "[a-z]*"), None),
        ("auto", "suffix", None, None),
        (6, "eagle3", None, TreeRequest(6, 4)),
        (0, "eagle3", None, None),
    ],
)
async def test_what_the_pool_is_asked_to_draft(
    memory_pool, memory_link, toy_tokenizer, tree_nodes, proposer: str, grammar, expected: TreeRequest | None
) -> None:
    targets, link = memory_pool(memory_link("target")), memory_link("draft")
    targets.max_draft_tokens = 8
    link.model = msgspec.structs.replace(link.model, proposer=proposer)
    speculation = SpeculationConfig(tree_nodes=tree_nodes, draft_ahead="off")
    request = GenerationRequest(
        prompt_token_ids=COPIED,
        sampling=SamplingParams(temperature=0, max_tokens=20, grammar=grammar),
        speculation=SpeculationOptions(mode="on", proposer="draft"),
        num_speculative_tokens=3,
    )
    config = Config(orchestrator=OrchestratorConfig(speculation=speculation))
    session = SessionFactory(config, toy_tokenizer, targets, memory_pool(link)).session(
        request, targets.links[0].model, RoundLog()
    )
    async with session.running() as chunks:
        while await chunks.take() is not None:
            pass
    asked = [command for command in link.commands if isinstance(command, Propose)]
    assert asked
    assert all(command.tree == expected for command in asked)


@pytest.mark.parametrize("tree_nodes", ["auto", 6, 0])
async def test_a_drafter_whose_limits_say_nothing_fails_no_request(
    memory_pool, memory_link, toy_tokenizer, tree_nodes
) -> None:
    targets, link = memory_pool(memory_link("target")), memory_link("draft")
    targets.max_draft_tokens = 8
    link.model = msgspec.structs.replace(link.model, proposer="model")
    link.limits = Limits(max_draft_tokens=0, max_sequences=64)
    request = GenerationRequest(
        prompt_token_ids=COPIED,
        sampling=SamplingParams(temperature=0, max_tokens=20),
        speculation=SpeculationOptions(mode="on", proposer="draft"),
        num_speculative_tokens=3,
    )
    config = Config(orchestrator=OrchestratorConfig(speculation=SpeculationConfig(tree_nodes=tree_nodes)))
    session = SessionFactory(config, toy_tokenizer, targets, memory_pool(link)).session(
        request, targets.links[0].model, RoundLog()
    )
    num_tokens = 0
    async with session.running() as chunks:
        while (chunk := await chunks.take()) is not None:
            num_tokens += len(chunk.token_ids)
    assert num_tokens == 20
