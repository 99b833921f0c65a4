import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pilotfish.cli.commands.models import models_app
from pilotfish.models.store.model_store import ModelCache


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def local_model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    config = {"model_type": "llama", "vocab_size": 3, "max_position_embeddings": 128, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}))
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    return folder


def run(*arguments: object, exit_code: int = 0) -> str:
    result = CliRunner().invoke(models_app, [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, result.output
    return result.output if exit_code else result.stdout


def publish_default(cache_dir: Path) -> None:
    cache = ModelCache(cache_dir)
    with cache.partial_folder("smollm2-135m-instruct") as partial:
        cache.publish("smollm2-135m-instruct", partial, {})


def test_list_tells_what_is_in_the_cache(cache_dir: Path) -> None:
    (entry,) = json.loads(run("list", "--json", "--cache-dir", cache_dir))
    assert (entry["name"], entry["licence"], entry["in_cache"]) == ("smollm2-135m-instruct", "Apache-2.0", False)
    publish_default(cache_dir)
    (entry,) = json.loads(run("list", "--json", "--cache-dir", cache_dir))
    assert entry["in_cache"]
    table = run("list", "--cache-dir", cache_dir)
    assert all(word in table for word in ("smollm2-135m-instruct", "Apache-2.0", "yes", "MB"))


def test_show(local_model: Path, cache_dir: Path) -> None:
    facts = json.loads(run("show", local_model, "--json", "--cache-dir", cache_dir))
    assert (facts["num_parameters"], facts["max_context_tokens"], facts["vocab_size"]) == (6, 128, 3)
    assert facts["eos_token_ids"] == [2]
    assert len(facts["tokenizer_fingerprint"]) == 64
    assert facts["config"]["model_type"] == "llama"
    assert "llama" in run("show", local_model, "--cache-dir", cache_dir)


def test_show_says_what_a_start_would_say(local_model: Path, cache_dir: Path) -> None:
    assert json.loads(run("show", local_model, "--json", "--cache-dir", cache_dir))["served"] == (
        "yes, on the paged KV cache"
    )
    for model_type, served in {
        "bloom": "yes, with transformers' own cache, one sequence a forward: 2 of its 2 layers lack attention",
        "bert": "no: the architecture 'bert' cannot be served",
    }.items():
        config = {"model_type": model_type, "vocab_size": 3, "max_position_embeddings": 128, "num_hidden_layers": 2}
        (local_model / "config.json").write_text(json.dumps(config))
        facts = json.loads(run("show", local_model, "--json", "--cache-dir", cache_dir))
        assert facts["served"].startswith(served)
