"""A draft model that writes the target's text with tokens of its own."""

import dataclasses
from pathlib import Path

import pytest

from draft_service.translation.engine import TranslatingEngine, translated
from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from tests.support.stack import Answer, running_stack
from tests.support.threaded_engine import ThreadedEngine

REQUEST = {"text": "The pilot fish swims ahead; the big one decides.", "max_tokens": 60, "seed": 11}
PLAIN = {"mode": pb.SPECULATION_MODE_OFF}
COUPLED, REJECTION = types_pb2.ACCEPTANCE_MODE_COUPLED, types_pb2.ACCEPTANCE_MODE_REJECTION
DRAFTED = {"mode": pb.SPECULATION_MODE_ON, "num_speculative_tokens": 4}


@pytest.fixture(params=["intersection", "text"])
def config(request: pytest.FixtureRequest, target_folder: Path, other_folder: Path, tmp_path: Path) -> Config:
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}
    draft = {"proposer": "model", "model": str(other_folder), "vocabulary": request.param, "engine": engine}
    return config_from_dict(
        {
            "target": {"model": str(target_folder), "engine": engine},
            "draft": draft,
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000}},
            "cache_dir": str(tmp_path),
        }
    )


async def answers(
    config: Config, temperature: float, acceptance: types_pb2.AcceptanceMode = COUPLED
) -> tuple[Answer, Answer]:
    """Plain, and with drafts of the other vocabulary's model."""
    target = ThreadedEngine(build_engine(config, "target"))
    drafter = await translated(ThreadedEngine(build_engine(config, "draft")), config)
    assert isinstance(drafter, TranslatingEngine)
    async with running_stack(config, target_engine=target, draft_engine=drafter) as stack:
        plain = await stack.ask(**REQUEST, temperature=temperature, speculation=PLAIN)
        options = {**DRAFTED, "acceptance": acceptance}
        return plain, await stack.ask(**REQUEST, temperature=temperature, speculation=options)


async def test_its_greedy_drafts_are_right(config: Config) -> None:
    plain, drafted = await answers(config, temperature=0.0)
    assert drafted.token_ids == plain.token_ids
    assert len(plain.token_ids) == 60
    stats = drafted.speculation
    # Of several likeliest tokens each takes that of the lowest id, and their ids are in another order.
    assert stats.num_accepted_tokens >= 0.9 * stats.num_draft_tokens > 30


async def test_a_seeded_text_stays_what_it_is(config: Config) -> None:
    """Tokens that both have are chosen with the target's noise: the same model drafts the same ones."""
    plain, drafted = await answers(config, temperature=0.9)
    assert drafted.token_ids == plain.token_ids
    stats = drafted.speculation
    share = 0.9 if config.draft.vocabulary == "intersection" else 0.0
    assert stats.num_accepted_tokens > share * stats.num_draft_tokens


async def test_rejection_sampling_takes_its_drafts(config: Config) -> None:
    """Drawn from what the target would draw from, nearly all are right; its likeliest text often."""
    _, drafted = await answers(config, temperature=0.1, acceptance=REJECTION)
    stats = drafted.speculation
    share = 0.9 if config.draft.vocabulary == "intersection" else 0.1
    assert stats.num_accepted_tokens >= share * stats.num_draft_tokens > 0


async def test_a_drafter_of_the_same_vocabulary_is_left_alone(config: Config) -> None:
    same = dataclasses.replace(config, draft=dataclasses.replace(config.draft, model=config.target.model))
    engine = ThreadedEngine(build_engine(same, "draft"))
    assert await translated(engine, same) is engine
    await engine.close()
