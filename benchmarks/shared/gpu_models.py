"""Models of real shapes with random weights on a GPU, and what it takes to read them."""

import argparse
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from shared.report import Report, times_ms
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from pilotfish.config import EngineConfig
from pilotfish.drafters.eagle3.config import Eagle3Config, default_feature_layers
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.eagle3.torch_head import TorchEagle3Head
from pilotfish.engine.process.gpu import record_graphs
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.feature_head import FeatureHead
from pilotfish.models.gpu_factory import build_gpu_decoder
from pilotfish.types import BLOCK_SIZE

MAX_SEQUENCES = 64
MAX_DRAFT_TOKENS = 7
MAX_CONTEXT = 768
DRAFT_VOCABULARY = 32000


def shape(kind: type[Any], hidden: int, intermediate: int, layers: int, heads: int, **others: Any) -> Any:
    """A configuration."""
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers}
    common = {"vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5}
    return kind(
        **{**common, **sizes, "num_attention_heads": heads, "num_key_value_heads": 8, "head_dim": 128, **others}
    )


SHAPES = {
    "llama-3.1-8b": shape(LlamaConfig, 4096, 14336, 32, 32),
    "llama-3.2-1b": shape(LlamaConfig, 2048, 8192, 16, 32, head_dim=64, tie_word_embeddings=True),
    "qwen3-8b": shape(Qwen3Config, 4096, 12288, 36, 32, vocab_size=151936),
    # What one of eight ranks holds: an eighth of the heads and of the MLP.
    "llama-3.1-70b-rank": shape(LlamaConfig, 8192, 3584, 80, 8, num_key_value_heads=1),
    "tiny": shape(LlamaConfig, 64, 96, 8, 4, vocab_size=4096, num_key_value_heads=2, head_dim=16),
    "tiny-draft": shape(LlamaConfig, 32, 64, 1, 2, vocab_size=4096, num_key_value_heads=2, head_dim=16),
}
"""As in the models' own config.json."""


@dataclass(slots=True)
class Bench:
    """What all stages need."""

    report: Report
    device: torch.device
    options: argparse.Namespace
    bandwidth_gb_s: float
    samples: int

    def floor_ms(self, num_bytes: int) -> float:
        """Time to read so many bytes."""
        return num_bytes / (self.bandwidth_gb_s * 1e6)

    def engine(self, **others: Any) -> EngineConfig:
        return EngineConfig(
            device=self.device.type,
            max_sequences=MAX_SEQUENCES,
            max_draft_tokens=MAX_DRAFT_TOKENS,
            kv_cache_tokens=MAX_SEQUENCES * MAX_CONTEXT,
            **others,
        )

    @contextmanager
    def model(self, name: str) -> Iterator[PreTrainedModel]:
        """Random weights on the device, and its memory back at the end."""
        with torch.device(self.device):
            model = AutoModelForCausalLM.from_config(SHAPES[name], dtype=torch.bfloat16)
        yield model.eval().requires_grad_(False)
        del model
        gc.collect()
        torch.cuda.empty_cache()

    def decoder(self, model: PreTrainedModel, **engine: Any) -> TransformersDecoder:
        """A decoder with a cache for all sequences; recorded unless the engine says otherwise."""
        config = self.engine(**engine)
        decoder = build_gpu_decoder(model, config, self.device, max_context_tokens=MAX_CONTEXT)
        decoder.allocate(config.kv_cache_tokens // BLOCK_SIZE + 1)
        start_s = time.monotonic()
        free_bytes = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 0
        record_graphs(decoder)
        if decoder.num_graphs and self.device.type == "cuda":
            taken = free_bytes - torch.cuda.mem_get_info(self.device)[0]
            seconds = time.monotonic() - start_s
            self.report.row(stage="graphs", kind=f"{decoder.num_graphs} graphs: {taken / 1e6:.0f} MB, {seconds:.1f} s")
        return decoder

    def head(self, model: PreTrainedModel, decoder: TransformersDecoder, *, graphs: bool) -> tuple[FeatureHead, int]:
        """A random EAGLE-3 head for the model, and the bytes that a forward reads."""
        sizes: Any = model.config
        config = Eagle3Config(
            hidden_size=sizes.hidden_size,
            intermediate_size=sizes.intermediate_size,
            num_attention_heads=sizes.num_attention_heads,
            num_key_value_heads=sizes.num_key_value_heads,
            head_dim=sizes.head_dim,
            vocab_size=sizes.vocab_size,
            draft_vocab_size=min(DRAFT_VOCABULARY, sizes.vocab_size),
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            max_position_embeddings=8192,
            feature_layers=default_feature_layers(sizes.num_hidden_layers),
            target_model="random",
            tokenizer_fingerprint="none",
        )
        head = Eagle3Head(config).to(self.device, torch.bfloat16).requires_grad_(False)
        runtime = TorchEagle3Head(
            head,
            decoder.input_embeddings,
            deterministic=False,
            row_attention=decoder.row_attention,
            graphs=decoder.graph_plan if graphs else None,
        )
        return runtime, sum(parameter.nbytes for parameter in head.parameters()) - head.fc.weight.nbytes


def read_bytes(model: PreTrainedModel) -> int:
    """Weights that a step reads: all but the embeddings, of which it takes a few rows, unless they are the head."""
    (embeddings,) = model.get_input_embeddings().parameters()
    kept = [*model.parameters(), *model.buffers()]
    return sum(t.nbytes for t in kept if t is not embeddings or model.config.tie_word_embeddings)


def bandwidth_gb_s(device: torch.device) -> float:
    """Bytes read a second, from copies of 1 GB (64 MB on a CPU), which read and write as much."""
    source = torch.zeros((1 << 30) if device.type == "cuda" else (1 << 26), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy_all() -> None:
        target.copy_(source)
        target[:1].tolist()

    return 2 * source.nbytes / (min(times_ms(copy_all, 5, warm_up=1)) * 1e6)
