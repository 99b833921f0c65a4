"""The target's features travel through real services to a head in the draft service, and its drafts back."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from draft_service.server import start_draft
from pilotfish.config import Config, config_from_dict
from pilotfish.config.target import InTargetDrafterConfig
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.process.factory import build_engine
from pilotfish.errors import ConfigError
from pilotfish.messages import Proposal
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.recorded_drafter import recorded_drafter
from tests.support.stack import Answer, running_stack
from tests.support.threaded_engine import ThreadedEngine
from tests.support.until import until

LAYERS = (0, 1, 1)
MakeConfig = Callable[..., Config]
REQUEST = {"text": "The pilot fish swims ahead; the big one decides.", "max_tokens": 60, "seed": 11}
PLAIN = {"mode": pb.SPECULATION_MODE_OFF}
DRAFTED = {"mode": pb.SPECULATION_MODE_ON, "num_speculative_tokens": 4}


def target_engine(config: Config) -> ThreadedEngine:
    return ThreadedEngine(build_engine(config, "target"))


@pytest.fixture
def make_config(target_folder: Path, head_folder: Path, tmp_path: Path) -> MakeConfig:
    def make(num_ranks: int = 1, speculation: Mapping[str, str] = MappingProxyType({}), **draft: str) -> Config:
        service = {"model": str(target_folder), "engine": {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}}
        return config_from_dict(
            {
                "target": {**service, "feature_layers": list(LAYERS), "tensor_parallel_size": num_ranks},
                "draft": {"proposer": "eagle3", "head": str(head_folder), **service, **draft},
                "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "decode_run_tokens": 4, **speculation}},
                "cache_dir": str(tmp_path),
            }
        )

    return make


@pytest.mark.parametrize("temperature", [0.9, 0.0])
async def test_the_text_is_that_of_plain_decoding(make_config: MakeConfig, temperature: float) -> None:
    config, proposals = make_config(), list[Proposal]()
    engines = {"target_engine": target_engine(config), "draft_engine": recorded_drafter(config, proposals)}
    async with running_stack(config, **engines) as stack:
        plain = await stack.ask(**REQUEST, temperature=temperature, speculation=PLAIN)
        assert len(plain.token_ids) > 20
        assert not proposals
        drafted = await stack.ask(**REQUEST, temperature=temperature, speculation=DRAFTED)
    assert drafted.token_ids == plain.token_ids
    assert drafted.speculation.num_draft_tokens > 0
    assert all(proposal.draft_token_ids for proposal in proposals)


@pytest.mark.parametrize("proposer", ["eagle3", "medusa", "model"])
@pytest.mark.parametrize("temperature", [0.9, 0.0])
async def test_trees_at_the_price_of_the_targets_rows_leave_the_text_as_it_is(
    make_config: MakeConfig, head_folder: Path, medusa_folder: Path, proposer: str, temperature: float
) -> None:
    weights = {"eagle3": {"head": str(head_folder)}, "medusa": {"head": str(medusa_folder)}}.get(proposer, {})
    config = make_config(speculation={"draft_ahead": "off"}, proposer=proposer, **weights)
    config, proposals = keeping(config, [2] if proposer == "medusa" else list(LAYERS)), list[Proposal]()
    engine = build_engine(config, "target")
    engine.begin_with(StepCosts((1, 64), (1e8, 1.1e8)))
    engines = {"target_engine": ThreadedEngine(engine), "draft_engine": recorded_drafter(config, proposals)}
    async with running_stack(config, **engines) as stack:
        plain = await stack.ask(**REQUEST, temperature=temperature, speculation=PLAIN)
        drafted = await stack.ask(**REQUEST, temperature=temperature, speculation=DRAFTED)
    assert drafted.token_ids == plain.token_ids
    assert any(proposal.parents for proposal in proposals)


async def test_the_same_head_drafts_in_the_target_and_in_the_pool(make_config: MakeConfig, head_folder: Path) -> None:
    config = keeping(make_config(), list(LAYERS))
    drafter = InTargetDrafterConfig(proposer="eagle3", model=str(head_folder))
    config = dataclasses.replace(config, target=dataclasses.replace(config.target, drafter=drafter))
    proposals = list[Proposal]()
    engines = {"target_engine": target_engine(config), "draft_engine": recorded_drafter(config, proposals)}
    async with running_stack(config, **engines) as stack:
        plain = await stack.ask(**REQUEST, temperature=0.9, speculation=PLAIN)
        inside = await stack.ask(**REQUEST, temperature=0.9, speculation={**DRAFTED, "proposer": "eagle3"})
        assert inside.speculation.num_draft_tokens > 0
        assert not proposals
        outside = await stack.ask(**REQUEST, temperature=0.9, speculation={**DRAFTED, "proposer": "draft"})
    assert outside.speculation.num_draft_tokens > 0
    assert proposals
    assert plain.token_ids == inside.token_ids == outside.token_ids


async def test_heads_of_other_layers_leave_the_pool_without_features(
    make_config: MakeConfig, head_folder: Path, medusa_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = keeping(make_config(proposer="medusa", head=str(medusa_folder)), "auto")
    drafter = InTargetDrafterConfig(proposer="eagle3", model=str(head_folder))
    config = dataclasses.replace(config, target=dataclasses.replace(config.target, drafter=drafter))
    engines = {"target_engine": target_engine(config), "draft_engine": recorded_drafter(config, [])}
    assert "the draft pool's medusa gets no features: features of layers [0, 1, 1] and of layers [2]" in caplog.text
    async with running_stack(config, **engines) as stack:
        answer = await stack.ask(**REQUEST, temperature=0.9, speculation={**DRAFTED, "proposer": "draft"})
    assert answer.speculation.num_draft_tokens == 0
    assert "the target keeps none" in answer.speculation.reason


async def test_features_come_from_a_target_in_ranks(make_config: MakeConfig) -> None:
    config, proposals = make_config(num_ranks=2), list[Proposal]()
    async with running_stack(config, draft_engine=recorded_drafter(config, proposals)) as stack:
        plain = await stack.ask(**REQUEST, temperature=0.9, speculation=PLAIN)
        drafted = await stack.ask(**REQUEST, temperature=0.9, speculation=DRAFTED)
    assert drafted.token_ids == plain.token_ids
    assert drafted.speculation.num_draft_tokens > 0
    assert all(proposal.draft_token_ids for proposal in proposals)


async def test_medusa_heads_get_what_leaves_the_last_layer(make_config: MakeConfig, medusa_folder: Path) -> None:
    config = keeping(make_config(proposer="medusa", head=str(medusa_folder)), "auto")
    proposals = list[Proposal]()
    engines = {"target_engine": target_engine(config), "draft_engine": recorded_drafter(config, proposals)}
    async with running_stack(config, **engines) as stack:
        plain = await stack.ask(**REQUEST, temperature=0.9, speculation=PLAIN)
        drafted = await stack.ask(**REQUEST, temperature=0.9, speculation={**DRAFTED, "num_speculative_tokens": 7})
    assert drafted.token_ids == plain.token_ids
    assert max(drafted.speculation.num_rounds_by_draft_tokens) == 4, "there are no more heads"
    assert all(proposal.draft_token_ids for proposal in proposals)


async def test_a_head_that_dies_and_comes_back_costs_only_drafts(make_config: MakeConfig) -> None:
    config, proposals, answer = make_config(), list[Proposal](), Answer()
    engines = {"target_engine": target_engine(config), "draft_engine": recorded_drafter(config, proposals)}
    async with running_stack(config, **engines) as stack:
        plain = await stack.ask(**REQUEST, temperature=0, speculation=PLAIN)
        async with stack.call(**REQUEST, temperature=0, speculation=DRAFTED) as call:
            await read(call, answer, 10)
            before = list(proposals)
            assert before
            await stack.draft.drain_and_stop(0)
            await read(call, answer, 20)
            anywhere = dataclasses.replace(config, draft=dataclasses.replace(config.draft, port=0))
            head = await start_draft(anywhere, engine=recorded_drafter(config, proposals))
            stack.directory.set_replicas("draft", {head.address: head.address})
            await until(lambda: any(link.is_connected for link in stack.orchestrator.service.drafts.links))
            await read(call, answer)
        await head.drain_and_stop(0)
    assert answer.token_ids == plain.token_ids
    # The new replica was told of the window that the orchestrator has kept: its first answer has drafts.
    after = [proposal for proposal in proposals if proposal not in before]
    assert after
    assert all(proposal.draft_token_ids for proposal in after)


async def test_unless_told_a_target_keeps_the_layers_of_published_heads(make_config: MakeConfig) -> None:
    """Which this one of two layers has not."""
    with pytest.raises(ConfigError, match=r"target\.feature_layers is \[2, 1, -1\]: layer -1 cannot be captured"):
        target_engine(keeping(make_config(), "auto"))


def keeping(config: Config, layers: Any) -> Config:
    return dataclasses.replace(config, target=dataclasses.replace(config.target, feature_layers=layers))


async def read(call, answer: Answer, num_tokens: int = 1 << 30) -> None:
    """Until there are num_tokens tokens, or the end."""
    async for response in call:
        answer.add(response)
        if answer.summary is None and len(answer.token_ids) >= num_tokens:
            return
