"""`python -m pilotfish.models.store.convert GGUF FOLDER`: a GGUF file as a bfloat16 safetensors folder.

The weights are dequantised by transformers. On an OSError (no space, say) the last line of stdout
is `{"errno": ..., "message": ...}` and the exit status 1.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch
from gguf import GGUFReader
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel

from pilotfish.models.loading import silence_transformers

_SYSTEM_ERROR = re.compile(r"os error (\d+)")


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write config, generation config, model.safetensors (bfloat16), tokenizer and chat template into `folder`."""
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        trust_remote_code=False,
    )
    _save_weights(model, folder / "model.safetensors")
    config = model.config
    vars(config).pop("quantization_config", None)  # the weights are plain now
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    _restore_pre_tokenizer(tokenizer.backend_tokenizer, gguf)
    tokenizer.save_pretrained(folder)


def _save_weights(model: PreTrainedModel, path: Path) -> None:
    """Save the state dict, tied tensors once. `save_pretrained` refuses a model that was read from GGUF."""
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor.to(torch.bfloat16).contiguous()
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        if match := _SYSTEM_ERROR.search(str(error)):
            raise OSError(int(match[1]), str(error)) from error
        raise


def _restore_pre_tokenizer(tokenizer: object, gguf: Path) -> None:
    """Split digits one by one where the GGUF says so.

    transformers takes GPT-2's rule for every GGUF of that kind and loses the difference: "\\n\\n12" would
    become other tokens than those the model was trained on.
    """
    field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[attr-defined]
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )


def main() -> int:
    """Convert as the command line says; returns the exit status."""
    silence_transformers()
    gguf, folder = (Path(argument) for argument in sys.argv[1:])
    try:
        convert_gguf(gguf, folder)
    except OSError as error:
        if error.errno is None:
            raise
        print(json.dumps({"errno": error.errno, "message": str(error.strerror)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
