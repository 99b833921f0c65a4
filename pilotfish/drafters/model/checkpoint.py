"""The folder of a trained draft model: an ordinary causal LM with the target's tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import PreTrainedModel

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
)


def save_draft_model(model: PreTrainedModel, target: Path, folder: Path) -> None:
    """A folder that transformers loads, with the target's tokenizer. The model is in bfloat16 afterwards."""
    model.to(torch.bfloat16).save_pretrained(folder)
    for name in _TOKENIZER_FILES:
        if (target / name).is_file():
            shutil.copyfile(target / name, folder / name)
