"""A small model of each architecture, answered by the engine and by transformers' own `generate`."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pilotfish.config import EngineConfig
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.errors import PilotfishError, UnsupportedModelError
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Verify
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.factory import BuiltDecoder, build_decoder
from pilotfish.models.loading import LoadedModel
from pilotfish.models.own_cache.decoder import OwnCacheDecoder
from pilotfish.models.self_check.check import deviation_of, serving_path_of
from pilotfish.models.self_check.serving_path import ServingPath
from pilotfish.models.self_check.twin import CONTEXT, NUM_TOKENS, twin_of
from pilotfish.models.store.folder import read_metadata
from pilotfish.types import BLOCK_SIZE, ModelInfo, SamplingParams
from tests.support.engine_events import errors_of, settle, text_of, verdicts_of

NUM_LAYERS = 6
NUM_OUTPUT_TOKENS = 48
TOLERANCE = 3e-3
"""Of the logits, in standard deviations of them."""

_ENGINE = EngineConfig(compile=False, kv_cache_tokens=1024, max_draft_tokens=8)
_WINDOW = {"use_sliding_window": True, "sliding_window": 4096}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8192}
_LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 48, "long_factor": [4.0] * 48}
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 24, 24]}
CHANGES: dict[str, dict[str, Any]] = {
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "dots1": {"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1},
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (NUM_LAYERS // 2)},
    "bamba": {"attn_layer_indices": [1, 4]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention", "linear_attention"] * (NUM_LAYERS // 3)},
    "gemma3n_text": {
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * (NUM_LAYERS // 2),
    },
    "reformer": {"is_decoder": True},
    "qwen2_vl": {"text_config": {"rope_parameters": _MROPE, "num_hidden_layers": NUM_LAYERS}},
    "qwen2_5_vl": {"text_config": {"rope_parameters": _MROPE, "num_hidden_layers": NUM_LAYERS}},
}
"""What a config cannot do without and has no default for."""
MULTIMODAL = (
    *("llava", "llava_next", "llava_onevision", "video_llava", "vipllava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"),
    *("qwen3_vl_moe", "smolvlm", "idefics2", "idefics3", "internvl", "mistral3", "paligemma", "aya_vision", "aria"),
    *("lfm2_vl", "cohere2_vision", "deepseek_vl", "glm4v", "kosmos-2", "blip-2", "instructblip"),
)
"""Architectures that write text about images and have no causal language model of that name: text alone is asked of
them."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2, window": ("qwen2", {**_WINDOW, "max_window_layers": 3}),
    "qwen2_moe, window": ("qwen2_moe", {**_WINDOW, "max_window_layers": 3}),
    "qwen3, window": ("qwen3", {**_WINDOW, "max_window_layers": 3}),
    "qwen3_moe, window": ("qwen3_moe", _WINDOW),
    "phimoe, window": ("phimoe", {"sliding_window": 2047}),
    "mixtral, window": ("mixtral", {"sliding_window": 4096}),
    "starcoder2, window": ("starcoder2", {"sliding_window": 4096}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, one key head": ("llama", {"num_key_value_heads": 1}),
    "llama, yarn": ("llama", {"rope_parameters": _YARN}),
    "llama, dynamic": ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}),
    "llama, not causal": ("llama", {"is_causal": False}),
    "phi3, longrope": ("phi3", {"rope_parameters": _LONGROPE}),
    "gemma3_text, not causal": ("gemma3_text", {"use_bidirectional_attention": True}),
    "granite, multipliers": ("granite", {"logits_scaling": 8.0, "residual_multiplier": 0.22}),
    "lfm2, convolutions": ("lfm2", {"layer_types": ["conv", "full_attention"] * (NUM_LAYERS // 2)}),
    "minimax_m3, sparse": ("minimax_m3_vl_text", {"layer_types": ["minimax_m3_sparse"] * NUM_LAYERS}),
    "opt, projections": ("opt", {"word_embed_proj_dim": 512, "do_layer_norm_before": False}),
    "bert, decoder": ("bert", {"is_decoder": True}),
}
"""Architectures with what a config.json may turn on."""


@dataclass(frozen=True)
class Finding:
    """How an architecture is served."""

    outcome: Literal["right", "refused", "wrong", "crash"]
    reason: str = ""
    """Why it is refused, or what is wrong."""
    deviation: float | None = None
    """Of the logits, in standard deviations; None: none were computed."""
    path: str = ""
    """Who computes it: `paged`, or `own cache` with how many rows at a time in float32 and bfloat16."""


def names() -> Iterator[str]:
    """Every architecture of the installed transformers that has a causal language model, then those that see images
    and the variants."""
    yield from MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    yield from MULTIMODAL
    yield from VARIANTS


def examine(name: str) -> Finding:
    """Serve a small model of it, unless it is refused, and compare."""
    model_type, changes = VARIANTS.get(name, (name, CHANGES.get(name, {})))
    try:
        config = _config(model_type, changes)
    except Exception as error:
        return Finding("refused", f"transformers has no default config of it: {_line(error)}")
    try:
        _require_described(config)
        return _compare(config)
    except PilotfishError as error:
        return Finding("refused", str(error))
    except Exception as error:
        return Finding("crash", _line(error))


def _require_described(config: PreTrainedConfig) -> None:
    """Raise UnsupportedModelError where the config.json alone keeps a start from serving it."""
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        try:
            read_metadata(Path(folder))
        except UnsupportedModelError as error:
            raise UnsupportedModelError(str(error).replace(folder, config.model_type)) from None


def _config(model_type: str, changes: dict[str, Any]) -> PreTrainedConfig:
    """As large as it is published, but of few layers where that is possible."""
    kind = CONFIG_MAPPING[model_type]
    depth: dict[str, Any] = {"num_hidden_layers": NUM_LAYERS}
    if "decoder_layers" in kind.__dataclass_fields__:
        depth = {"encoder_layers": NUM_LAYERS, "decoder_layers": NUM_LAYERS}
    elif "text_config" in kind.sub_configs:
        depth = {"text_config": {"num_hidden_layers": NUM_LAYERS}}
    try:
        return kind(**{**depth, **changes})
    except Exception:  # lists of all layers
        return kind(**changes)


def _compare(config: PreTrainedConfig) -> Finding:
    try:
        model = twin_of(config, seed=11)
    except Exception:
        serving_path_of(config)  # says why not
        raise
    prompt = torch.randint(0, NUM_TOKENS, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    path = serving_path_of(config)
    built = _built(copy.deepcopy(model), path, "float32")
    tokens, logits = generated(model, prompt)
    deviation = _deviation(built.decoder, [*prompt, *tokens], logits)
    halves = _built(_in_bfloat16(model), path, "bfloat16")
    core, half_core = _core(built), _core(halves)
    half_tokens = _decoded(half_core, prompt)
    ways = {
        "plainly": (_decoded(core, prompt), tokens),
        "with drafts": (_drafted(core, prompt, tokens), tokens),
        "in bfloat16 with drafts": (_drafted(half_core, prompt, half_tokens), half_tokens),
    }
    for way, (text, right) in ways.items():
        if text != right:
            same = next(index for index, pair in enumerate(zip(text, right, strict=True)) if pair[0] != pair[1])
            return Finding("wrong", f"decoded {way}, the text differs from token {same} on", deviation)
    if deviation > TOLERANCE:
        return Finding("wrong", "the text is right, the logits differ", deviation)
    rows = [built.decoder.rows.value for built in (built, halves) if isinstance(built.decoder, OwnCacheDecoder)]
    return Finding("right", path.reason, deviation, f"own cache, {', '.join(rows)}" if rows else "paged")


def _in_bfloat16(model: PreTrainedModel) -> PreTrainedModel:
    """The model as it is loaded: some keep a few weights in float32."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded: PreTrainedModel = type(model).from_pretrained(folder, dtype=torch.bfloat16)
        return loaded.eval().requires_grad_(False)


def _built(model: PreTrainedModel, path: ServingPath, dtype: Literal["bfloat16", "float32"]) -> BuiltDecoder:
    """The decoder, as a service on a CPU without native kernels makes it."""
    vocab_size = model.config.get_text_config().vocab_size
    loaded = LoadedModel(model, Path(), model.config.model_type, vocab_size, CONTEXT, "", path)
    engine = replace(_ENGINE, dtype=dtype)
    with tempfile.TemporaryDirectory() as folder:
        return build_decoder(loaded, engine, num_threads=torch.get_num_threads(), cache_dir=Path(folder))


def _core(built: BuiltDecoder) -> EngineCore:
    vocab_size = built.decoder.vocab_size
    info = ModelInfo(model_id="", tokenizer_fingerprint="", vocab_size=vocab_size, max_context_tokens=CONTEXT)
    prefix_caching = not isinstance(built.decoder, OwnCacheDecoder)
    return EngineCore(built.decoder, replace(_ENGINE, prefix_caching=prefix_caching), info)


def generated(model: PreTrainedModel, prompt: Sequence[int]) -> tuple[list[int], Tensor]:
    """transformers' own greedy continuation, and the logits [NUM_OUTPUT_TOKENS, V] that it was chosen by."""
    assert model.generation_config is not None
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    rows = torch.tensor([list(prompt)])
    result: Any = model.generate(
        rows,
        attention_mask=torch.ones_like(rows),
        max_new_tokens=NUM_OUTPUT_TOKENS,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return result.sequences[0, len(prompt) :].tolist(), torch.cat(result.logits).float()


def _deviation(decoder: Decoder, text: Sequence[int], logits: Tensor) -> float:
    """The largest, of the logits [N, V] that the last N tokens were chosen by."""
    decoder.allocate(2 + CONTEXT // BLOCK_SIZE)
    first = len(text) - len(logits)
    worst, start = 0.0, 0
    for end in (first // 2, *range(first, len(text))):
        part = SequenceSlice(0, end - start, start, range(1, 1 + CONTEXT // BLOCK_SIZE))
        ours = decoder.forward(StepInput(text[start:end], range(start, end), [part], [end - start - 1]))[0]
        if end >= first:
            worst = max(worst, deviation_of(ours, logits[end - first]))
        start = end
    return worst


def _decoded(core: EngineCore, prompt: Sequence[int]) -> list[int]:
    core.submit(OpenSequence(1, tuple(prompt), SamplingParams(temperature=0)))
    core.submit(Decode(1, len(prompt), NUM_OUTPUT_TOKENS))
    text = text_of(settle(core))
    core.submit(CloseSequence(1))
    return text


def _drafted(core: EngineCore, prompt: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """By chains and trees in turn, of which a part is right."""
    core.submit(OpenSequence(2, tuple(prompt), SamplingParams(temperature=0)))
    text: list[int] = []
    while len(text) < NUM_OUTPUT_TOKENS:
        right = [*tokens[len(text) : len(text) + 2], 0, 0][:2]
        wrong = (right[0] + 1) % NUM_TOKENS
        parents, drafts = ((), (*right, wrong)) if len(text) % 2 else ((-1, -1, 1, 0, 2), (wrong, *right, wrong, wrong))
        core.submit(Verify(2, len(prompt) + len(text), drafts, parents=parents))
        events = settle(core)
        assert verdicts_of(events, 2), errors_of(events)
        text += text_of(events, 2)
    core.submit(CloseSequence(2))
    return text[:NUM_OUTPUT_TOKENS]


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
