"""What `pilotfish serve` and `pilotfish config` make of a flag."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from pilotfish.cli.main import app
from pilotfish.cli.roles import Role
from pilotfish.cli.serve_flags import FLAGS
from pilotfish.config import Config, config_to_yaml, load_config

runner = CliRunner()


def config(*arguments: str) -> Result:
    return runner.invoke(app, ["config", *arguments])


def changed(*arguments: str) -> dict[str, Any]:
    """The keys that differ from the defaults."""
    result = config(*arguments)
    assert result.exit_code == 0, result.output
    return {key: value for key, value in flat(yaml.safe_load(result.stdout)).items() if value != DEFAULTS[key]}


def flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    values = {}
    for key, value in section.items():
        values |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return values


DEFAULTS = flat(yaml.safe_load(config_to_yaml(Config())))


def test_flags_set_their_keys_and_no_others() -> None:
    values = {
        "--host 0.0.0.0": ("orchestrator.host", "0.0.0.0"),
        "--port 8080": ("orchestrator.http.port", 8080),
        "--served-model-name a --served-model-name 7": ("orchestrator.served_model_name", ["a", "7"]),
        "--api-key x": ("security.public.api_key_sha256", [hashlib.sha256(b"x").hexdigest()]),
        "--dtype float32": ("target.engine.dtype", "float32"),
        "--max-model-len 512": ("target.engine.max_context_tokens", 512),
        "--chat-template a.jinja": ("orchestrator.chat_template", "a.jinja"),
        "--reasoning-parser qwen3": ("orchestrator.http.reasoning_parser", "qwen3"),
    }
    assert changed(*" ".join(values).split()) == dict(values.values())
    assert changed("--quantization", "int8") == {"target.engine.quantization": "int8"}


def test_an_adapter_is_also_the_models_name(tmp_path: Path) -> None:
    assert changed("--lora", "legal=org/lora") == {
        "target.lora": "org/lora",
        "orchestrator.served_model_name": ["legal"],
    }
    assert changed("--lora", "org/lora") == {"target.lora": "org/lora"}
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    assert changed("--lora", str(folder)) == {"target.lora": str(folder)}
    assert changed("--lora", f"legal={folder}")["target.lora"] == str(folder)


def test_vllms_generation_config_is_none_here() -> None:
    assert changed("--generation-config", "vllm") == {"orchestrator.generation_config": "none"}


def test_vllms_default_dtype_is_ours() -> None:
    assert changed("--dtype", "auto") == {}


@pytest.mark.parametrize("arguments", [("m", "--port", "1", "n"), ("--reasoning-parsers", "qwen3")])
def test_a_second_model_and_unknown_flags_are_refused(arguments: tuple[str, ...]) -> None:
    assert config(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [("--api-key", ""), ("--reasoning-parser", "misspelt"), ("--tool-call-parser", "misspelt")]
)
def test_a_value_that_no_server_can_use_is_refused(arguments: tuple[str, str]) -> None:
    assert isinstance(config(*arguments).exception, SystemExit)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ("--tensor-parallel-size 2", {"target.tensor_parallel_size": 2}),
        ("-tp 2", {"target.tensor_parallel_size": 2}),
        ("--emulate cpu", {"emulation.profile": "cpu"}),
        ("org/model@v1.2", {"target.model": "org/model@v1.2", "draft.model": "org/model@v1.2"}),
        (
            "org/model --draft-model org/small",
            {"draft.proposer": "model", "draft.model": "org/small", "target.drafter.proposer": "none"},
        ),
    ],
)
def test_flags_that_set_more_than_they_say(arguments: str, values: dict[str, Any]) -> None:
    assert values.items() <= changed(*arguments.split()).items()


def test_a_share_of_the_gpu_sizes_the_kv_cache() -> None:
    share = {"target.engine.gpu_memory_utilization": 0.7, "target.engine.kv_cache_tokens": 0}
    assert changed("--gpu-memory-utilization", "0.7") == share


def test_every_key_exists() -> None:
    known = {*DEFAULTS, "orchestrator.speculation"}
    assert {flag.key for flag in FLAGS} <= known


def test_set_comes_after_flags_and_flags_after_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pilotfish.yaml"
    file.write_text("target: {engine: {max_context_tokens: 100}}")
    key = "target.engine.max_context_tokens"
    assert changed("--config", str(file), "--max-model-len", "200")[key] == 200
    assert changed("--config", str(file), "--max-model-len", "200", "--set", f"{key}=300")[key] == 300


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_service_has_another_command(command: str, role: Role) -> None:
    result = runner.invoke(app, [command, role])
    assert result.exit_code == 2
    assert f"pilotfish service {role}" in " ".join(result.output.replace("│", " ").split())


METHODS = {
    '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 5, "prompt_lookup_min": 3}': {
        "orchestrator.speculation.num_speculative_tokens": 4,
        "draft.prompt_lookup_max": 5,
        "draft.prompt_lookup_min": 3,
        "target.drafter.lookup": "ngram",
        "target.drafter.proposer": "none",
    },
    '{"method": "suffix", "disable_by_batch_size": 8}': {
        "target.drafter.proposer": "none",
        "orchestrator.speculation.disable_by_batch_size": 8,
    },
    '{"method": "eagle3"}': {"target.drafter.lookup": "none"},
    '{"method": "eagle3", "model": "/head"}': {"target.drafter.model": "/head", "target.drafter.lookup": "none"},
    '{"model": "org/small", "num_speculative_tokens": 3}': {
        "draft.proposer": "model",
        "draft.model": "org/small",
        "orchestrator.speculation.num_speculative_tokens": 3,
        "target.drafter.proposer": "none",
        "target.drafter.lookup": "none",
    },
}


@pytest.mark.parametrize("text", METHODS)
def test_vllms_speculation_in_our_keys(text: str) -> None:
    settings = changed("--speculative-config", text)
    if settings.get("target.drafter.proposer") == "none":
        assert settings.pop("target.drafter.model") == ""
    assert settings == METHODS[text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ngram", "it is not JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "there is no method None; there are: draft_model, eagle3, medusa, early_exit, ngram, suffix"),
        ('{"method": "mtp"}', "there is no method 'mtp'; there are: draft_model, eagle3,"),
        ('{"method": ["ngram"]}', "there is no method ['ngram']"),
        ('{"method": "eagle3", "model": "/h", "draft_tensor_parallel_size": 1}', "no key draft_tensor_parallel_size;"),
        ('{"method": "ngram", "model": "m"}', "method ngram has no key model; there are: method, num_speculative"),
        ('{"method": "draft_model"}', "method draft_model needs a model"),
    ],
)
def test_what_we_do_not_have_is_told_with_what_we_have(text: str, message: str) -> None:
    result = config("--speculative-config", text)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_the_default_has_no_flag_in_it() -> None:
    assert changed() == {}
    assert load_config() == Config()
