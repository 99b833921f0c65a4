"""What a configuration refuses before a process starts with it."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.config import EngineConfig, config_from_yaml, config_to_yaml, load_config
from pilotfish.errors import ConfigError


@pytest.mark.parametrize("section", ["target", "draft"])
@pytest.mark.parametrize("quantization", ["none", "lossless", "int8", "int4"])
def test_both_engines_take_a_quantization(section: str, quantization: str) -> None:
    config = load_config(None, [f"{section}.engine.quantization={quantization}"])
    assert getattr(config, section).engine.quantization == quantization


def test_an_unknown_quantization_names_its_key_and_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"draft\.engine\.quantization.*'lossless', 'int8', 'int4' or 'fp8'"):
        load_config(None, ["draft.engine.quantization=int3"])


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


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:one", "mps", ""])
def test_an_unknown_device_is_told_the_names(device: str) -> None:
    with pytest.raises(ConfigError, match="it must be auto, cpu, cuda or cuda:N"):
        EngineConfig(device=device)


@pytest.mark.parametrize(
    ("key", "value"), [("gpu_memory_utilization", 0), ("gpu_memory_utilization", 1.1), ("kv_cache_tokens", 31)]
)
def test_shares_of_memory_make_sense(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{key} must be"):
        load_config(None, [f"target.engine.{key}={value}"])


@pytest.mark.parametrize(
    ("value", "layers"), [("eagle3", "eagle3"), ("auto", "auto"), ("[1, 5, 9]", (1, 5, 9)), ("[]", ())]
)
def test_feature_layers_are_a_name_or_numbers_and_survive_yaml(value: str, layers: object) -> None:
    config = load_config(None, [f"target.feature_layers={value}"])
    assert config.target.feature_layers == layers
    assert config_from_yaml(config_to_yaml(config)) == config


def test_features_are_kept_for_one_kind_of_drafter() -> None:
    settings = ["target.drafter.proposer=early_exit", "target.feature_layers=eagle3"]
    with pytest.raises(ConfigError, match=r"target\.feature_layers is eagle3.*early_exit drafts in the target"):
        load_config(None, settings)
    load_config(None, [settings[0], "draft.proposer=eagle3"])


@pytest.mark.parametrize("mode", ["on", "off", "auto"])
def test_a_speculation_mode_is_a_word_also_where_yaml_sees_a_boolean(mode: str) -> None:
    config = load_config(overrides=[f"orchestrator.speculation.mode={mode}"])
    assert config.orchestrator.speculation.mode == mode
    assert config_from_yaml(config_to_yaml(config)) == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("draft.lookup_min_probability=1.5", "lookup_min_probability must be between 0 and 1"),
        ("draft.suffix_shared_tokens=100", "must be 0 .* or at least 256"),
        ("draft.hybrid_min_accepted_tokens=-1", "must be at least 0"),
        ("target.drafter.lookup=parrot", r"target\.drafter\.lookup.*'none', 'ngram' or 'suffix'"),
        ("orchestrator.speculation.lookup=parrot", r"speculation\.lookup.*'none', 'ngram' or 'suffix'"),
    ],
)
def test_lookups_are_told_what_does_not_fit(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=[override])


def test_batch_size_rules_come_from_yaml_as_lists() -> None:
    key = "orchestrator.speculation.num_speculative_tokens_per_batch_size"
    config = load_config(None, [f"{key}=[[1, 64, 3], [65, 512, 0]]"])
    rules = config.orchestrator.speculation.num_speculative_tokens_per_batch_size
    assert rules == ((1, 64, 3), (65, 512, 0))
    assert config_from_yaml(config_to_yaml(config)) == config
    with pytest.raises(ConfigError, match=r"must hold \[first, last, K\]"):
        load_config(None, [f"{key}=[[5, 2, 3]]"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("disable_by_batch_size", "-1"),
        ("disable_by_batch_size_hysteresis", "-1"),
        ("min_acceptance_rate", "1.5"),
        ("min_output_tokens", "0"),
    ],
)
def test_rules_of_the_controller_are_checked(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load_config(None, [f"orchestrator.speculation.{key}={value}"])


def test_drafting_ahead_can_be_turned_off_by_a_yaml_word() -> None:
    config = load_config(None, ["orchestrator.speculation.draft_ahead=off"])
    assert config_from_yaml(config_to_yaml(config)).orchestrator.speculation.draft_ahead == "off"
    with pytest.raises(ConfigError, match="draft_ahead_tokens must be between 0"):
        load_config(None, ["orchestrator.speculation.draft_ahead_tokens=257"])


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("target.prot=1", r"target\.prot: there is no such key; did you mean port\?"),
        ("tagret.port=1", r"tagret: there is no such key; did you mean target\?"),
        ("target.drafter.modle=x", r"did you mean model\?"),
        ("orchestrator.http_port=1", r"did you mean http\.port\?"),
        ("target.zzz=1", r"target\.zzz: there is no such key$"),
        ("target=5", r"target is a section: give values to its keys \(target\.KEY\)"),
        ("target.port=[", r"'\[' is not a YAML value"),
        ("orchestrator.target_addresses=a:1", r"orchestrator\.target_addresses must be a list, such as \[a:1\]$"),
        ("orchestrator.target_addresses=['a:99999']", r"'a:99999' is not an address"),
        ("orchestrator.draft_addresses=['dns:///a:0']", r"'dns:///a:0' is not an address"),
        ("draft.engine.num_threads=-1", r"the configuration: draft\.engine: num_threads must be at least 0"),
        ("deployment.draft.num_cpus=-1", r"the configuration: deployment\.draft: num_cpus must be at least 0"),
        ("security.internal.certificate=a", r"the configuration: security\.internal needs certificate, private_key"),
    ],
)
def test_a_wrong_guess_is_told_what_would_be_right(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_config(None, [override])
