"""A head is trained from a target that runs in two processes, as one is that nobody could load here."""

import json
from pathlib import Path

import pytest
import torch

from pilotfish.config import config_from_dict
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.training.pipeline import run_training
from pilotfish.training.request import Stage, TrainingRequest, Watcher
from target_service.server import start_target
from tests.support.loop_thread import LoopThread
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama


class Silent(Watcher):
    def stage(self, stage: Stage, total: float, done: float = 0) -> None: ...

    def progress(self, done: float, note: str = "") -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    sizes = {"vocab_size": PRINTABLE_VOCAB_SIZE, "num_hidden_layers": 4, "max_position_embeddings": 512}
    tiny_llama(**sizes, bos_token_id=None, eos_token_id=None).to(torch.bfloat16).save_pretrained(path)
    save_printable_tokenizer(path)
    return path


def test_from_a_target_in_ranks(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "texts.jsonl"
    data.write_text("\n".join(json.dumps({"text": f"The pilot fish {'swims ' * (n % 7)}ahead."}) for n in range(30)))
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 2048}
    target = {"model": str(folder), "port": 0, "engine": engine, "tensor_parallel_size": 2, "feature_layers": [2, 1, 4]}
    loop = LoopThread()
    try:
        server = loop.run(start_target(config_from_dict({"target": target, "cache_dir": str(tmp_path)})))
        try:
            request = TrainingRequest(
                method="eagle3",
                target=str(folder),
                out=tmp_path / "head",
                cache_dir=tmp_path,
                data=(data,),
                target_address=server.address,
                max_epochs=2,
                batch_tokens=256,
                draft_vocab_size=40,
                num_threads=1,
            )
            result = run_training(request, Silent())
        finally:
            loop.run(server.drain_and_stop(0))
    finally:
        loop.close()
    assert result.point.mean_acceptance_length >= 1
    assert load_eagle3(result.out, num_target_layers=4).config.draft_vocab_size == 40
