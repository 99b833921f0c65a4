"""Random models of the architectures that decoders run, so small that a test can compute with them, and their heads."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
)

from pilotfish.drafters.eagle3.config import Eagle3Config

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def tiny_model(kind: str, dtype: torch.dtype, *, sliding_window: int = 20, **changes: Any) -> PreTrainedModel:
    """`llama` (its embeddings are tied), `llama3-rope`, `qwen2`, `qwen3`, `mistral`, `gemma3`, `gpt_oss`, `gpt2` and
    `phi3` (merged projections) or `stablelm` (its layers keep a step's keywords from attention), in eval mode; no
    parameter requires a gradient. changes: of SIZES. Seeds torch's own generator."""
    torch.manual_seed(7)
    sizes = {**SIZES, **changes}
    model: PreTrainedModel
    match kind:
        case "llama":
            model = LlamaForCausalLM(LlamaConfig(**{"tie_word_embeddings": True, **sizes}))
        case "llama3-rope":
            model = LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters=_LLAMA3_ROPE))
        case "qwen2":
            model = Qwen2ForCausalLM(Qwen2Config(**{name: size for name, size in sizes.items() if name != "head_dim"}))
        case "qwen3":
            model = Qwen3ForCausalLM(Qwen3Config(**sizes))
        case "mistral":
            model = MistralForCausalLM(MistralConfig(**sizes, sliding_window=sliding_window))
        case "gemma3":
            layers = [("sliding_attention", "full_attention")[layer % 2] for layer in range(sizes["num_hidden_layers"])]
            config = Gemma3TextConfig(**sizes, sliding_window=sliding_window, layer_types=layers)
            model = Gemma3ForCausalLM(config)
        case "gpt_oss":
            model = GptOssForCausalLM(GptOssConfig(**sizes, sliding_window=sliding_window, num_local_experts=4))
        case "gpt2":
            names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
            model = GPT2LMHeadModel(GPT2Config(**{name: sizes[name] for name in names}))
        case "phi3":
            model = Phi3ForCausalLM(Phi3Config(**sizes, sliding_window=sliding_window, pad_token_id=0))
        case "stablelm":
            del sizes["head_dim"]
            model = StableLmForCausalLM(StableLmConfig(**sizes))
        case _:
            raise AssertionError(kind)
    with torch.no_grad():  # larger than the default initialisation: attention, norms and biases must matter
        for parameter in model.parameters():
            parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.to(dtype).eval().requires_grad_(False)


def tiny_eagle3_config(**changes: Any) -> Eagle3Config:
    """Of a head for `tiny_llama`, unless changes say otherwise."""
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 64,
        "draft_vocab_size": 40,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 128,
        "feature_layers": (0, 1, 1),
    }
    return Eagle3Config(**{**sizes, **changes})


def greedy_text(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """transformers' own greedy continuation, one forward over the whole text a token."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
