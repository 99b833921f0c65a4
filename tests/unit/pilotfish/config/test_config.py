"""What a configuration refuses before a process starts with it."""

from operator import attrgetter
from typing import Any

import pytest

from pilotfish.config import EngineConfig, config_from_yaml, config_to_yaml, load_config
from pilotfish.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantization": "int4", "compile": False}, "int4 needs device cpu and compile true"),
        ({"quantization": "int4", "device": "cuda"}, "int4 needs device cpu and compile true"),
        ({"quantization": "int4", "dtype": "float32"}, "int4 needs dtype bfloat16"),
        ({"quantization": "int8", "dtype": "float32"}, "int8 needs dtype bfloat16"),
        ({"quantization": "int8", "compile": False}, "int8 needs compile true on the CPU"),
        ({"quantization": "fp8"}, "fp8 needs a GPU"),
    ],
)
def test_quantised_weights_need_something_that_computes_with_them(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"quantization {message}"):
        EngineConfig(**changes)
    EngineConfig(**{**changes, "quantization": "lossless"})


@pytest.mark.parametrize("quantization", ["int8", "fp8"])
@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:3"])
def test_a_gpu_computes_with_8_bit_weights_and_no_compiler(quantization: Any, device: str) -> None:
    EngineConfig(quantization=quantization, device=device, compile=device == "auto")


@pytest.mark.parametrize(
    ("value", "layers"), [("eagle3", "eagle3"), ("auto", "auto"), ("[1, 5, 9]", (1, 5, 9)), ("[]", ())]
)
def test_feature_layers_are_a_name_or_numbers_and_survive_yaml(value: str, layers: object) -> None:
    config = load_config(None, [f"target.feature_layers={value}"])
    assert config.target.feature_layers == layers
    assert config_from_yaml(config_to_yaml(config)) == config


@pytest.mark.parametrize("key", ["orchestrator.speculation.mode", "orchestrator.speculation.draft_ahead"])
def test_off_is_a_word_also_where_yaml_sees_a_boolean(key: str) -> None:
    config = load_config(overrides=[f"{key}=off"])
    assert attrgetter(key)(config) == "off"
    assert config_from_yaml(config_to_yaml(config)) == config


def test_batch_size_rules_come_from_yaml_as_lists() -> None:
    key = "orchestrator.speculation.num_speculative_tokens_per_batch_size"
    config = load_config(None, [f"{key}=[[1, 64, 3], [65, 512, 0]]"])
    rules = config.orchestrator.speculation.num_speculative_tokens_per_batch_size
    assert rules == ((1, 64, 3), (65, 512, 0))
    assert config_from_yaml(config_to_yaml(config)) == config


@pytest.mark.parametrize(
    "override",
    [
        "draft.engine.quantization=lossless",
        "orchestrator.routing.policy=least_loaded",
        "deployment.draft.labels={ray.io/accelerator-type: L4}",
    ],
)
def test_what_is_set_survives_yaml(override: str) -> None:
    config = load_config(overrides=[override])
    assert config != load_config()
    assert config_from_yaml(config_to_yaml(config)) == config


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], "suffix"),
        (["draft.proposer=ngram"], "draft"),
        (["draft.proposer=suffix"], "draft"),
        (["orchestrator.num_replicas=2"], "draft"),
        (["orchestrator.num_replicas=2", "draft.num_replicas=0"], "suffix"),
        (["emulation.profile=instant"], "draft"),
    ],
)
def test_a_lookup_costs_a_round_trip_only_where_orchestrators_share_it(settings: list[str], expected: str) -> None:
    config = load_config(None, settings)
    assert config.default_proposer == expected
    assert config_from_yaml(config_to_yaml(config)).default_proposer == expected
