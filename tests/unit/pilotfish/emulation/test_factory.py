"""From a configuration to an emulated engine."""

import dataclasses
from pathlib import Path

import pytest

from pilotfish.config import Config, EmulationConfig, EngineConfig, InTargetDrafterConfig, TargetConfig
from pilotfish.emulation.factory import describe_emulation, start_emulated_engine
from pilotfish.emulation.profiles import load_profile
from pilotfish.errors import ConfigError
from pilotfish.features import FeatureRequest
from pilotfish.messages import Decode, Opened, OpenSequence, Proposal, Propose, Verdict
from pilotfish.types import SamplingParams


def config(tmp_path: Path, **emulation: object) -> Config:
    section = EmulationConfig(**{"profile": "instant", **emulation})
    return Config(target=TargetConfig(model="nobody/has-this"), emulation=section, cache_dir=str(tmp_path))


def in_target(tmp_path: Path, proposer: str = "eagle3", **emulation: str) -> Config:
    """A configuration with a drafter in the target, of a model that no head comes with."""
    plain = config(tmp_path, **{"profile": "h100-70b-tp4", **emulation})
    drafter = InTargetDrafterConfig(proposer=proposer)
    return dataclasses.replace(plain, target=dataclasses.replace(plain.target, drafter=drafter))


async def test_it_has_the_limits_of_its_profile_and_says_what_it_is(tmp_path: Path) -> None:
    engine = start_emulated_engine(config(tmp_path, profile="a100-70b"), "target")
    profile = load_profile("a100-70b")
    assert engine.model.emulated
    assert engine.model.model_id == "emulated a100-70b"
    assert engine.limits.max_sequences == profile.max_sequences
    assert engine.model.max_context_tokens == profile.max_context_tokens
    assert engine.load.num_kv_blocks_total * 16 == profile.kv_cache_tokens
    await engine.close()


@pytest.mark.parametrize(("prefix_caching", "num_cached"), [(True, 32), (False, 0)])
async def test_prompts_are_cached_only_where_the_configuration_says_so(
    tmp_path: Path, prefix_caching: bool, num_cached: int
) -> None:
    with_cache = config(tmp_path)
    engine_config = EngineConfig(prefix_caching=prefix_caching)
    engine = start_emulated_engine(
        dataclasses.replace(with_cache, target=dataclasses.replace(with_cache.target, engine=engine_config)), "target"
    )
    prompt, cached = tuple(range(300, 340)), []
    for sequence_id in (1, 2):
        engine.send([OpenSequence(sequence_id, prompt, SamplingParams()), Decode(sequence_id, 40, 1)])
        events: list[object] = []
        while not any(isinstance(event, Verdict) for event in events):
            events += await engine.receive()
        cached += [event.num_cached_tokens for event in events if isinstance(event, Opened)]
    assert cached == [0, num_cached]
    await engine.close()


async def test_slower_hardware_takes_as_many_times_as_long_for_every_step(tmp_path: Path) -> None:
    profile = load_profile("a100-70b")
    for role, cost in (("target", profile.target), ("draft", profile.draft)):
        engine = start_emulated_engine(config(tmp_path, profile="a100-70b", time_scale=0.25), role)
        engine.send([OpenSequence(1, (300, 301, 302), SamplingParams())])
        await engine.receive()
        assert engine.load.step_time_ns == pytest.approx(0.25e9 * cost.step_s(1, 3, 3), rel=0.01)
        await engine.close()
    assert "5 times the hardware's" in describe_emulation(profile, 5)


async def test_a_drafter_of_the_profile_drafts_in_the_pool_at_its_cost(tmp_path: Path) -> None:
    with_head = config(tmp_path, profile="h100-70b-tp4", drafter="EAGLE-3 head")
    head = load_profile("h100-70b-tp4").drafter("EAGLE-3 head")
    engine = start_emulated_engine(with_head, "draft")
    engine.send([OpenSequence(1, (300, 301, 302), SamplingParams()), Propose(1, 3, (), 1)])
    while not any(isinstance(event, Proposal) for event in await engine.receive()):
        pass
    assert engine.load.step_time_ns == pytest.approx(1e9 * head.cost.step_s(1, 3, 3), rel=0.01)
    await engine.close()


async def test_a_head_in_the_pool_gets_features_of_the_real_ones_size(tmp_path: Path) -> None:
    with_head = config(tmp_path, profile="h100-70b-tp4", drafter="EAGLE-3 head")
    target, drafter = (start_emulated_engine(with_head, role) for role in ("target", "draft"))
    assert target.model.feature_layers == drafter.model.feature_layers != ()
    target.send([OpenSequence(1, (300, 301, 302), SamplingParams()), Decode(1, 3, 2, features=FeatureRequest(1, True))])
    verdicts: list[Verdict] = []
    while sum(len(verdict.token_ids) for verdict in verdicts) < 2:
        verdicts += [event for event in await target.receive() if isinstance(event, Verdict)]
    # Of the prompt from the position on that was asked for, and of the first token: the second is not computed yet.
    assert [
        verdict.features and (verdict.features.first_position, verdict.features.num_tokens) for verdict in verdicts
    ] == [
        None,
        (1, 3),
    ]
    assert len(verdicts[-1].features.data) == 3 * (3 * 8192 + 12)
    await target.close()
    await drafter.close()


@pytest.mark.parametrize("drafter", ["", "EAGLE-3 head"])
async def test_a_head_in_the_target_drafts_there_and_needs_no_features(drafter: str, tmp_path: Path) -> None:
    """The pool then has the profile's draft model."""
    with_head = in_target(tmp_path, drafter=drafter)
    target, pool = (start_emulated_engine(with_head, role) for role in ("target", "draft"))
    assert (target.model.proposer, target.model.feature_layers, pool.model.feature_layers) == ("eagle3", (), ())
    target.send([OpenSequence(1, (300, 301, 302), SamplingParams()), Decode(1, 3, 100, num_draft_tokens=4)])
    verdicts: list[Verdict] = []
    while sum(len(verdict.token_ids) for verdict in verdicts) < 100:
        verdicts += [event for event in await target.receive() if isinstance(event, Verdict)]
    assert sum(verdict.num_accepted_tokens for verdict in verdicts) > 50
    await target.close()
    await pool.close()


@pytest.mark.parametrize(
    ("proposer", "emulation", "problem"),
    [
        ("early_exit", {}, "early_exit is not emulated: set it to eagle3"),
        ("eagle3", {"drafter": "1B model"}, "1B model of profile h100-70b-tp4 is a head"),
        ("eagle3", {"profile": "instant"}, "no drafter of profile instant is a head"),
    ],
)
def test_a_head_that_the_profile_lacks_is_refused(
    proposer: str, emulation: dict[str, str], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        start_emulated_engine(in_target(tmp_path, proposer, **emulation), "target")


def test_an_unknown_drafter_is_told_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no drafter 'oracle': it has EAGLE-3 head, 1B model"):
        start_emulated_engine(config(tmp_path, profile="a100-70b", drafter="oracle"), "draft")
