"""`python -m pilotfish.models.store.convert GGUF FOLDER`: a GGUF file as a bfloat16 safetensors folder.

The weights are dequantised by transformers. `conversion` runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from gguf import GGUFReader
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.loading import silence_transformers
from pilotfish.models.store.conversion import report_failures

_GPT2_RULES = frozenset({"gpt-2", "phi-2", "mpt", "olmo"})
_DIGIT_RULES = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
"""Names of pre-tokenizers, by llama.cpp's `src/llama-vocab.cpp`."""


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write config, generation config, model.safetensors (bfloat16), tokenizer and chat template into `folder`.

    Raises UnsupportedModelError for an architecture or a tokenizer that is not known.
    """
    splits_digits = _splits_digits(gguf)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
            trust_remote_code=False,
        )
    except ValueError as error:
        raise UnsupportedModelError(f"{gguf.name} cannot be read, take the model's safetensors: {error}") from error
    _save_weights(model, folder / "model.safetensors")
    config = model.config
    vars(config).pop("quantization_config", None)  # the weights are plain now
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if splits_digits:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    tokenizer.save_pretrained(folder)


def _save_weights(model: PreTrainedModel, path: Path) -> None:
    """Save the state dict, tied tensors once. `save_pretrained` refuses a model that was read from GGUF."""
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor.to(torch.bfloat16).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def _splits_digits(gguf: Path) -> bool:
    """Whether its tokenizer takes GPT-2's rule, but digits one by one: transformers takes GPT-2's for whatever it does
    not know, and "\\n\\n12" would become other tokens than those the model was trained on.

    Raises UnsupportedModelError for a rule that neither knows, and for a broken file.
    """
    try:
        reader = GGUFReader(gguf)
    except (ValueError, IndexError) as error:
        raise UnsupportedModelError(
            f"{gguf.name} is no GGUF file, or only a part of one ({error}): get it anew"
        ) from error
    kind, rule = (
        None if (field := reader.get_field(f"tokenizer.ggml.{key}")) is None else field.contents()
        for key in ("model", "pre")
    )
    if kind != "gpt2" or rule in GGUF_PRE_TOKENIZER_SPLITS or rule in _GPT2_RULES:
        return False
    if rule not in _DIGIT_RULES:
        raise UnsupportedModelError(
            f"the tokenizer of {gguf.name} splits text by a rule that is not known here ({rule}): take the model's "
            "safetensors"
        )
    return True


def main() -> int:
    """Convert as the command line says; returns the exit status."""
    silence_transformers()
    gguf, folder = (Path(argument) for argument in sys.argv[1:])
    return report_failures(lambda: convert_gguf(gguf, folder))


if __name__ == "__main__":
    sys.exit(main())
