"""What lies beside a model's weights, through real services: an adapter, and its own defaults of sampling."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.stack import StackThread, running_stack
from tests.support.threaded_engine import ThreadedEngine

PROMPT, NUM_TOKENS = "The pilot fish swims ahead", 24
MODULE = "model.layers.0.mlp.down_proj"


def configured(model: Path, cache: Path, generation_config: str = "auto", **target: object) -> Config:
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024, "dtype": "float32"}
    sections = {
        "target": {"model": str(model), "engine": engine, **target},
        "orchestrator": {"generation_config": generation_config},
        "cache_dir": str(cache),
    }
    return config_from_dict(sections)


@pytest.fixture
def model(target_folder: Path, tmp_path: Path) -> Path:
    """The target with a temperature of its own: 0, so that answers tell whether it is taken."""
    folder = tmp_path / "target"
    shutil.copytree(target_folder, folder)
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.0, "top_p": 0.9}))
    return folder


async def test_an_adapter_is_part_of_the_target_and_heads_go_on_drafting(
    model: Path, head_folder: Path, tmp_path: Path
) -> None:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows, columns = base.get_submodule(MODULE).weight.shape
    torch.manual_seed(5)
    matrices = {"A": torch.randn(2, columns), "B": torch.randn(rows, 2)}
    adapter = tmp_path / "style"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 4}))
    names = {f"base_model.model.{MODULE}.lora_{name}.weight": matrix for name, matrix in matrices.items()}
    save_file(names, adapter / "adapter_model.safetensors")

    drafter = {"proposer": "eagle3", "model": str(head_folder)}
    config = configured(model, tmp_path / "cache", lora=str(adapter), drafter=drafter)
    engine = ThreadedEngine(build_engine(config, "target"))
    async with running_stack(config, with_draft=False, target_engine=engine) as stack:
        prompt = stack.orchestrator.service.tokenizer.encode(PROMPT)
        plain = base.generate(torch.tensor([prompt]), max_new_tokens=NUM_TOKENS, do_sample=False)[0, len(prompt) :]
        base.get_submodule(MODULE).weight.data += 2 * matrices["B"] @ matrices["A"]
        expected = base.generate(torch.tensor([prompt]), max_new_tokens=NUM_TOKENS, do_sample=False)[0, len(prompt) :]
        assert not torch.equal(plain, expected)
        for mode in (pb.SPECULATION_MODE_OFF, pb.SPECULATION_MODE_ON):
            answer = await stack.ask(PROMPT, max_tokens=NUM_TOKENS, temperature=0.0, speculation={"mode": mode})
            assert answer.token_ids == expected.tolist()
            assert (answer.speculation.num_draft_tokens > 0) == (mode == pb.SPECULATION_MODE_ON)
        assert answer.summary is not None
        assert answer.summary.model_id == "target+style"


def complete(server: StackThread, **fields: object) -> str:
    body = {"prompt": PROMPT, "max_tokens": NUM_TOKENS, "ignore_eos": True, **fields}
    text: str = server.http.post(f"{server.url}/v1/completions", json=body).json()["choices"][0]["text"]
    return text


def test_requests_that_leave_a_field_out_get_the_models_own(model: Path, tmp_path: Path) -> None:
    texts: dict[str, list[str]] = {}
    for generation_config in ("auto", "none"):
        config = configured(model, tmp_path / "cache", generation_config)
        engine = lambda config=config: ThreadedEngine(build_engine(config, "target"))  # noqa: E731
        with StackThread(config, engine) as server:
            asked = ({"seed": 1}, {"seed": 2}, {"temperature": 1.0, "seed": 1}, {"temperature": 0.0})
            texts[generation_config] = [complete(server, **fields) for fields in asked]
    first, second, sampled, greedy = texts["auto"]
    assert first == second == greedy != sampled
    first, second, sampled, _ = texts["none"]
    assert first == sampled != second
