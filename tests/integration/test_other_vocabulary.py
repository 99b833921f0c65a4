"""A draft model that writes the target's text with tokens of its own."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from draft_service.server import start_draft
from draft_service.translation.engine import TranslatingEngine, translated
from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.errors import HandshakeError
from pilotfish.messages import OpenSequence, Proposal, Propose
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from pilotfish.types import SamplingParams
from tests.support.peer import RecordingPeer
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


async def test_one_pool_drafts_for_targets_of_several_families(
    config: Config, target_folder: Path, other_folder: Path, tmp_path: Path
) -> None:
    """Each peer is known by its tokenizer, and told the same text in its own tokens."""
    third = tmp_path / "third"
    shutil.copytree(target_folder, third)
    tokenizer = json.loads((third / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    turned = {token: (token_id + 9) % len(vocabulary) for token, token_id in vocabulary.items()}
    tokenizer["model"]["vocab"] = turned
    for token in tokenizer["added_tokens"]:
        token["id"] = turned[token["content"]]
    (third / "tokenizer.json").write_text(json.dumps(tokenizer))
    draft = dataclasses.replace(config.draft, targets=(str(third),), port=0, metrics_port=-1)
    config = dataclasses.replace(config, draft=draft)
    engine = await translated(ThreadedEngine(build_engine(config, "draft")), config)
    server = await start_draft(config, engine=engine)
    drafts = []
    for folder in (target_folder, third, other_folder):
        family = Tokenizer.load(folder)
        prompt = tuple(family.encode(REQUEST["text"]))
        hello = Hello(peer="test", tokenizer_fingerprint=family.fingerprint)
        async with RecordingPeer(server.address, "draft", hello=hello) as peer:
            greedy = SamplingParams(temperature=0)
            proposal = await peer.ask(OpenSequence(1, prompt, greedy), Propose(1, len(prompt), (), 4))
            assert isinstance(proposal, Proposal)
            drafts.append((proposal.draft_token_ids, family.decode(list(proposal.draft_token_ids))))
    assert len({token_ids for token_ids, _ in drafts}) == 3
    assert len({text for _, text in drafts}) == 1
    stranger = RecordingPeer(server.address, "draft", hello=Hello(peer="test", tokenizer_fingerprint="f" * 64))
    with pytest.raises(HandshakeError, match="has tokenizer ffffffffffff"):
        await stranger.__aenter__()
    await server.drain_and_stop(0.0)
