"""What the config.json of Medusa heads says. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.folder import read_json
from pilotfish.models.store.head_config import HeadConfig
from pilotfish.models.store.tensor_folder import positive


@dataclass(frozen=True, kw_only=True)
class MedusaConfig(HeadConfig):
    """Sizes of the heads, and the target they belong to."""

    num_heads: int
    """K. Head k guesses the token k + 2 places after the row's own: the next one is the target's to decide."""
    num_layers: int = 1
    """Residual blocks of a head."""


def read_medusa_config(folder: Path, *, hidden_size: int, vocab_size: int) -> MedusaConfig:
    """Read config.json, the authors' or vLLM's. The authors' give no sizes: they are the target's, of hidden_size and
    vocab_size.

    Raises: ModelNotFoundError without one; UnsupportedModelError naming the field that is missing or wrong.
    """
    path = folder / "config.json"
    values = read_json(path)
    for name, vllms in (("medusa_num_heads", "num_heads"), ("medusa_num_layers", "num_hidden_layers")):
        if vllms in values:
            values.setdefault(name, values[vllms])
    if values.get("medusa_num_heads") is None:
        raise UnsupportedModelError(f"{path} has no medusa_num_heads: {folder} holds no Medusa heads")
    number = partial(positive, values, path)
    vocab_size = number("vocab_size", vocab_size)
    return MedusaConfig(
        hidden_size=number("hidden_size", hidden_size),
        vocab_size=vocab_size,
        num_heads=number("medusa_num_heads"),
        num_layers=number("medusa_num_layers", 1),
        draft_vocab_size=number("truncated_vocab_size", vocab_size),
        target_model=str(values.get("base_model_name_or_path", "")),
        tokenizer_fingerprint=str(values.get("target_tokenizer_fingerprint", "")),
    )


def medusa_config_json(config: MedusaConfig) -> dict[str, Any]:
    """The config.json that read_medusa_config understands."""
    return {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "medusa_num_heads": config.num_heads,
        "medusa_num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        # vLLM's name; token_map in the weights leads back to the target's token ids.
        "truncated_vocab_size": config.draft_vocab_size,
        "torch_dtype": "bfloat16",
        "base_model_name_or_path": config.target_model,
        "target_tokenizer_fingerprint": config.tokenizer_fingerprint,
    }
