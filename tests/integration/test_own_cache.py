"""Models that transformers computes with its own cache, behind the services."""

import asyncio
from pathlib import Path

import pytest
from transformers import CONFIG_MAPPING

from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.errors import ConfigError
from pilotfish.models.self_check.twin import twin_of
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.stack import running_stack
from tests.support.threaded_engine import ThreadedEngine
from tests.support.tiny_llama import save_printable_tokenizer

PROMPT, OTHER = "a small fish, a small fish, a small", "a small fish, the big"
DRAFTED = {"mode": pb.SPECULATION_MODE_ON, "proposer": "suffix", "num_speculative_tokens": 4}
PLAIN = {"mode": pb.SPECULATION_MODE_OFF}


def saved(model_type: str, folder: Path) -> str:
    """A tiny one whose tokens are printable characters."""
    sizes = {"num_hidden_layers": 4, "bos_token_id": None, "eos_token_id": None}
    twin_of(CONFIG_MAPPING[model_type](**sizes), 1, attention=None).bfloat16().save_pretrained(folder)
    save_printable_tokenizer(folder)
    return str(folder)


def configured(model: str, cache_dir: Path, proposer: str, **engine: object) -> Config:
    settings = {"num_threads": 1, "kv_cache_tokens": 1024, **engine}
    return config_from_dict(
        {
            "target": {"model": model, "engine": settings},
            "draft": {"model": model, "proposer": proposer, "engine": settings},
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "decode_run_tokens": 2}},
            "cache_dir": str(cache_dir),
        }
    )


@pytest.mark.parametrize(
    ("model_type", "engine"), [("falcon", {}), ("qwen3_next", {"deterministic": False, "dtype": "float32"})]
)
@pytest.mark.parametrize("temperature", [0, 0.9])
async def test_drafts_change_no_text(
    tmp_path: Path, model_type: str, engine: dict[str, object], temperature: float
) -> None:
    config = configured(saved(model_type, tmp_path), tmp_path, "suffix", **engine)
    target = ThreadedEngine(build_engine(config, "target"))
    async with running_stack(config, target_engine=target) as stack:
        sampled = {"temperature": temperature, "seed": 7, "max_tokens": 40}
        plain = [await stack.ask(prompt, speculation=PLAIN, **sampled) for prompt in (PROMPT, OTHER)]
        drafted = await asyncio.gather(
            *(stack.ask(prompt, speculation=DRAFTED, **sampled) for prompt in (PROMPT, OTHER, PROMPT))
        )
        assert [each.token_ids for each in drafted] == [each.token_ids for each in (*plain, plain[0])]
        assert sum(each.speculation.num_draft_tokens for each in drafted) > 0
        assert all(len(each.token_ids) == 40 for each in drafted)


async def test_a_model_that_can_be_cut_back_drafts(tmp_path: Path) -> None:
    config = configured(saved("falcon", tmp_path), tmp_path, "model", dtype="float32")
    engines = [ThreadedEngine(build_engine(config, role)) for role in ("target", "draft")]
    async with running_stack(config, target_engine=engines[0], draft_engine=engines[1]) as stack:
        plain = await stack.ask(PROMPT, temperature=0, speculation=PLAIN)
        drafted = await stack.ask(PROMPT, temperature=0, speculation={**DRAFTED, "proposer": "draft"})
        assert drafted.token_ids == plain.token_ids
        report = drafted.speculation
        assert report.num_accepted_tokens == report.num_draft_tokens > 0


def test_a_state_that_cannot_be_cut_back_does_not_draft(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"draft\.model keeps a state that cannot be cut back"):
        build_engine(configured(saved("mamba", tmp_path), tmp_path, "model"), "draft")
