"""From a configuration to an emulated engine."""

import dataclasses
from pathlib import Path

import pytest

from pilotfish.config import Config, EmulationConfig, EngineConfig, TargetConfig
from pilotfish.emulation.engine import describe_emulation, start_emulated_engine
from pilotfish.emulation.profiles import load_profile
from pilotfish.messages import Decode, Opened, OpenSequence, Verdict
from pilotfish.types import SamplingParams


def config(tmp_path: Path, **emulation: object) -> Config:
    section = EmulationConfig(**{"profile": "instant", **emulation})
    return Config(target=TargetConfig(model="nobody/has-this"), emulation=section, cache_dir=str(tmp_path))


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
