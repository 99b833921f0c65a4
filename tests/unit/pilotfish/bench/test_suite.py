"""Which stacks a benchmark needs, and which arms run there."""

import dataclasses
from collections.abc import Sequence

from pilotfish.bench.arms import Variant
from pilotfish.bench.proposers import PROPOSERS, parse_proposers
from pilotfish.bench.suite import STACK_DEFAULTS, Settings, stations_of
from pilotfish.client.answer import GenerateOptions
from pilotfish.config import Config, load_config


def settings(*lengths: int, with_auto: bool = True) -> Settings:
    return Settings(
        lengths=lengths, with_auto=with_auto, max_tokens=1, options=GenerateOptions(temperature=0), timeout_s=1
    )


def configure(overrides: Sequence[str]) -> Config:
    return load_config(overrides=[*STACK_DEFAULTS, *overrides])


def test_proposers_that_need_the_same_configuration_share_a_stack() -> None:
    stations = stations_of(parse_proposers(["ngram", "model=/a,suffix", "suffix-remote"]), configure)
    assert [[proposer.name for proposer in station.proposers] for station in stations] == [
        ["ngram", "suffix"],
        ["model"],
        ["suffix-remote"],
    ]
    configs = [station.config for station in stations if station.config is not None]
    assert [config.draft.drafter for config in configs] == ["suffix", "model", "suffix"]
    assert configs[1].draft.model == "/a"


def test_nothing_of_earlier_answers_helps_a_later_one() -> None:
    config = configure(())
    assert not config.target.engine.prefix_caching
    assert not config.draft.engine.prefix_caching
    assert config.draft.suffix_shared_tokens == 0


def test_every_proposer_makes_a_configuration_once_it_has_its_weights() -> None:
    for proposer in PROPOSERS.values():
        chosen = proposer.with_model("/heads") if proposer.model_key else proposer
        configure(chosen.overrides)


def test_each_proposer_has_an_arm_for_each_length_and_auto() -> None:
    proposers = parse_proposers(["ngram,suffix"])
    assert settings(3, 5).variants(proposers) == [
        Variant("ngram", 3),
        Variant("ngram", 5),
        Variant("ngram"),
        Variant("suffix", 3),
        Variant("suffix", 5),
        Variant("suffix"),
    ]
    assert settings(3, with_auto=False).variants(proposers[:1]) == [Variant("ngram", 3)]


def test_lossy_arms_stand_beside_each_exact_one() -> None:
    lossy = dataclasses.replace(settings(3, with_auto=False), lossy=("typical", "step"))
    variants = lossy.variants(parse_proposers(["ngram"]))
    assert [variant.name for variant in variants] == ["ngram K=3", "ngram K=3 typical", "ngram K=3 step"]
