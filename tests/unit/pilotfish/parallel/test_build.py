"""What is refused before a rank starts."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pilotfish.config import Config, EngineConfig, TargetConfig
from pilotfish.engine.process.factory import build_engine
from pilotfish.errors import ConfigError, ModelDownloadError, UnsupportedModelError
from pilotfish.parallel import build as build_module
from pilotfish.parallel.build import build_parallel_decoder
from pilotfish.parallel.channel import RankPeer, dial
from pilotfish.parallel.ranks import meet


def build(config: Config) -> None:
    with meet(None) as meeting:
        build_parallel_decoder(config, 1, meeting)


@pytest.fixture
def target(
    saved_model: Callable[[str], Any], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> TargetConfig:
    def start(*_: object) -> None:
        raise AssertionError("ranks must not start")

    monkeypatch.setattr(build_module, "start_ranks", start)
    shutil.copytree(saved_model("llama")[1], tmp_path, dirs_exist_ok=True)
    shutil.copy(model_folder / "tokenizer.json", tmp_path)
    return TargetConfig(model=str(tmp_path), tensor_parallel_size=2, engine=EngineConfig(dtype="float32"))


def test_heads_that_do_not_divide(target: TargetConfig) -> None:
    with pytest.raises(ConfigError, match=r"tensor_parallel_size is 3; .* 8 heads, 4 .* into 1, 2, 4: choose"):
        build(Config(target=replace(target, tensor_parallel_size=3)))


@pytest.mark.parametrize(
    ("num_gpus", "settings", "message"),
    [
        (1, {}, "is 2, and this machine has 1 GPU: each rank needs one"),
        (4, {"device": "cuda:2"}, r"device is cuda:2, which is one GPU, .* set it to cuda, and CUDA_VISIBLE"),
    ],
)
def test_gpus_that_do_not_fit(
    target: TargetConfig, monkeypatch: pytest.MonkeyPatch, num_gpus: int, settings: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    engine = replace(target.engine, **{"device": "cuda", **settings})
    with pytest.raises(ConfigError, match=message):
        build(Config(target=replace(target, engine=engine)))


def test_models_that_our_attention_cannot_compute(target: TargetConfig) -> None:
    config = {"model_type": "bloom", "vocab_size": 64, "max_position_embeddings": 64, "num_hidden_layers": 2}
    (Path(target.model) / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match=r"tensor_parallel_size 2 needs a model on the paged KV cache"):
        build(Config(target=target))


def test_what_needs_one_process(target: TargetConfig) -> None:
    with pytest.raises(ConfigError, match=r"set target\.tensor_parallel_size to 1, or quantization to none"):
        replace(target, engine=EngineConfig(quantization="int4"))


def test_ranks_that_run_already_wait_while_the_model_is_downloaded(
    target: TargetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under Ray they start first. One that looks for rank 0 amid the download finds it, and its end as well."""
    peers: list[RankPeer] = []

    def pull(*_: object, adapter: str) -> Path:
        peers.append(dial(tmp_path, 1, 0))
        raise ModelDownloadError("interrupted")

    monkeypatch.setattr(build_module, "pull_model", pull)
    with pytest.raises(ModelDownloadError, match="interrupted"):
        build_engine(Config(target=target), "target", rank_folder=tmp_path)
    with pytest.raises((EOFError, ConnectionError)):
        peers[0].receive()
    peers[0].close()
