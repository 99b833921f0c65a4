"""Ranks on a GPU: their steps are recorded with the sums over NCCL inside, and compute what one process does."""

import asyncio
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from pilotfish.config import Config, EngineConfig, InTargetDrafterConfig, TargetConfig
from pilotfish.drafters.eagle3.checkpoint import save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.messages import Decode, OpenSequence, Verify
from pilotfish.models.gpu_factory import build_gpu_decoder
from pilotfish.parallel.group import ProcessGroup
from pilotfish.parallel.meeting import rank_command
from pilotfish.parallel.sharded_model import load_shard
from pilotfish.types import SamplingParams
from tests.gpu.conftest import CONTEXT, NUM_BLOCKS
from tests.gpu.test_decoding import STEPS, expected, prefill, step_of
from tests.support.engine_events import received_text
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama
from tests.support.tiny_models import greedy_text, tiny_eagle3_config

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
]


class WatchedGroup(ProcessGroup):
    """Says of each sum whether it was recorded."""

    recorded: tuple[bool, ...] = ()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(self, partial: Tensor) -> Tensor:
        self.recorded += (torch.cuda.is_current_stream_capturing(),)
        total: Tensor = super().add(partial)
        return total


@pytest.fixture
def group(device: torch.device, tmp_path: Path) -> Iterator[WatchedGroup]:
    """The only rank of its group: NCCL refuses two on one GPU."""
    group = WatchedGroup(0, 1, device, in_rank_order=False)
    group.connect(tmp_path / "store")
    yield group
    gc.collect()  # NCCL waits for the graphs that it is part of
    group._backend.shutdown()


@pytest.mark.parametrize(("graphs", "compiled"), [(False, False), (True, False), (True, True)])
def test_a_rank_computes_what_the_cpu_does(
    reference: LlamaForCausalLM, device: torch.device, group: WatchedGroup, tmp_path: Path, graphs: bool, compiled: bool
) -> None:
    reference.save_pretrained(tmp_path)
    model = load_shard(tmp_path, group, torch.float32, device)
    engine = EngineConfig(cuda_graphs=graphs, compile=compiled, max_sequences=4)
    decoder = build_gpu_decoder(model, engine, device, max_context_tokens=CONTEXT)
    decoder.allocate(NUM_BLOCKS)
    group.recorded = ()
    decoder.forward(step_of(STEPS["decode"]))
    num_sums = len(group.recorded)
    assert num_sums >= 2 * decoder.num_layers
    decoder.record_graphs()
    assert sum(group.recorded) == decoder.num_graphs * num_sums
    prefill(decoder)
    for parts in STEPS.values():
        group.recorded = ()
        ours = decoder.forward(step_of(parts)).cpu()
        assert len(group.recorded) == (0 if graphs else num_sums)
        theirs = expected(reference, parts)
        assert (ours - theirs).abs().max() < 1e-3
        assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


def test_a_step_of_a_rank_never_waits_for_the_device(
    reference: LlamaForCausalLM, device: torch.device, group: WatchedGroup, tmp_path: Path, request: Any
) -> None:
    reference.save_pretrained(tmp_path)
    model = load_shard(tmp_path, group, torch.float32, device)
    engine = EngineConfig(cuda_graphs=False, compile=False)
    decoder = build_gpu_decoder(model, engine, device, max_context_tokens=CONTEXT)
    decoder.allocate(NUM_BLOCKS)
    prefill(decoder)
    request.getfixturevalue("no_waiting")
    for parts in STEPS.values():
        decoder.forward(step_of(parts))


PROMPT = tuple((7 * index + 3) % 90 for index in range(40))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("compiler", ["gcc", "/nonexistent"])
async def test_a_replica_of_two_ranks_gives_the_targets_own_text(
    monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    """With a head, on one GPU: NCCL takes it for that of two machines, which are connected by sockets. Where rank 1 has
    no compiler, both run without compiled layers and our kernels."""
    monkeypatch.setenv("NCCL_HOSTID", "first")
    monkeypatch.setenv("NCCL_NET", "Socket")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    model = tiny_llama(
        spread=4.0, vocab_size=PRINTABLE_VOCAB_SIZE, hidden_size=256, max_position_embeddings=CONTEXT, **heads
    )
    with tempfile.TemporaryDirectory() as name:
        folder, meeting_place = Path(name) / "model", Path(name) / "ranks"
        meeting_place.mkdir()
        model.save_pretrained(folder)
        save_printable_tokenizer(folder)
        sizes = {"hidden_size": 256, "vocab_size": PRINTABLE_VOCAB_SIZE, "max_position_embeddings": CONTEXT}
        save_eagle3(Eagle3Head(tiny_eagle3_config(**sizes, **heads)), Path(name) / "head")
        drafter = InTargetDrafterConfig(proposer="eagle3", model=f"{name}/head")
        settings = EngineConfig(
            device="cuda",
            dtype="float32",
            kv_cache_tokens=0,
            gpu_memory_utilization=0.2,
            max_batch_tokens=64,
            max_sequences=4,
        )
        target = TargetConfig(model=str(folder), tensor_parallel_size=2, drafter=drafter, engine=settings)
        config = Config(target=target)
        # Started by somebody else, as under Ray: then each rank takes the first GPU.
        environment = {**os.environ, "NCCL_HOSTID": "second", "CC": compiler}
        environment |= {f"{cache}_CACHE_DIR": f"{name}/{cache}" for cache in ("TRITON", "TORCHINDUCTOR")}
        rank = await asyncio.create_subprocess_exec(*rank_command(meeting_place, 1), env=environment)
        try:
            async with asyncio.timeout(200):
                engine = await ProcessEngine.start(config, "target", rank_folder=str(meeting_place))
                try:
                    text = greedy_text(model, PROMPT, 12)
                    engine.send([OpenSequence(1, PROMPT, SamplingParams(temperature=0, max_tokens=100))])
                    engine.send([Decode(1, len(PROMPT), 6)])
                    assert await received_text(engine, 6) == text[:6]
                    engine.send([Verify(1, len(PROMPT) + 6, (*text[6:8], (text[8] + 1) % 90))])
                    assert await received_text(engine, 3) == text[6:9]
                    engine.send([Decode(1, len(PROMPT) + 9, 3, num_draft_tokens=2)])
                    assert await received_text(engine, 3) == text[9:]
                finally:
                    await engine.close()
                assert await rank.wait() == 0
        finally:
            if rank.returncode is None:
                rank.kill()
                await rank.wait()
