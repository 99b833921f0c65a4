"""A LoRA adapter's folder as peft writes it (2106.09685), and whether it can be merged into a model. Torch-free."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.errors import ModelNotFoundError, UnsupportedModelError
from pilotfish.models.store.folder import read_json
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
CHAT_TEMPLATE = "chat_template.jinja"
"""File in the adapter's folder with the template that it was trained with."""
TEXT_SUFFIXES = (".json", ".jinja", ".txt", ".model")
"""Suffixes of the files beside the weights that a merged model takes from its base."""
_OTHER_SUMS = (
    "use_dora",
    "use_qalora",
    "lora_bias",
    "layer_replication",
    "alora_invocation_tokens",
    "trainable_token_indices",
    "target_parameters",
)
"""Fields of peft's LoraConfig that, once set, make the change of a weight another than B·A."""
_PLAIN_STARTS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Values of init_lora_weights that leave the base model's weights alone."""
_ALPHA = 8
"""peft's default of lora_alpha."""


@dataclass(frozen=True)
class Adapter:
    """What adapter_config.json says."""

    folder: Path
    config: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Adapter:
        """Raises ModelNotFoundError for a folder that holds no adapter, UnsupportedModelError for one that is not
        plain LoRA."""
        if not (folder / CONFIG).is_file():
            raise ModelNotFoundError(f"{folder} has no {CONFIG}: it holds no LoRA adapter")
        adapter = cls(folder, read_json(folder / CONFIG))
        if reason := adapter._not_plain():
            raise UnsupportedModelError(
                f"{folder} holds an adapter of another kind ({reason}): merge it with peft (merge_and_unload) and "
                "serve that folder"
            )
        if not (folder / WEIGHTS).is_file():
            raise ModelNotFoundError(
                f"{folder} has no {WEIGHTS}: save the adapter again (save_pretrained); pickles are not read"
            )
        return adapter

    def scale(self, module: str, rank: int) -> float:
        """What B·A is multiplied by, for a module of the model: alpha / rank, or alpha / sqrt(rank) (rsLoRA,
        2312.03732)."""
        patterns: Mapping[str, float] = self.config.get("alpha_pattern") or {}
        matching = (value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module))
        alpha = float(next(matching, self.config.get("lora_alpha", _ALPHA)))
        return alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    @property
    def is_transposed(self) -> bool:
        """Whether the model's weights are [in, out] (GPT-2's)."""
        return bool(self.config.get("fan_in_fan_out"))

    def check_tokenizer(self, base: Path) -> None:
        """Raise UnsupportedModelError where the adapter was trained with other tokens than those of the base model."""
        own = self.folder / "tokenizer.json"
        if own.is_file() and tokenizer_fingerprint(self.folder) != tokenizer_fingerprint(base):
            raise UnsupportedModelError(
                f"the adapter in {self.folder} has another tokenizer than {base}: merge it with peft, and serve that "
                "folder with the adapter's tokenizer; or, if it is another model's, name that model"
            )

    def _not_plain(self) -> str:
        """Why B·A added to the weights is not what the adapter means; empty: it is."""
        if (kind := self.config.get("peft_type")) != "LORA":
            return f"peft_type {kind}"
        start = self.config.get("init_lora_weights")
        if start not in _PLAIN_STARTS:
            return f"init_lora_weights {start}"
        return next((name for name in _OTHER_SUMS if self.config.get(name)), "")


def merged_name(base: Path, adapter: Path) -> str:
    """Name of the merged model's folder in the cache: other files, or files that have changed, have another."""
    digest = hashlib.sha256()
    for folder in (base, adapter):
        for path in sorted(path for path in folder.iterdir() if path.suffix in (*TEXT_SUFFIXES, ".safetensors")):
            stat = path.stat()
            digest.update(f"{path}:{stat.st_size}:{stat.st_mtime_ns}\n".encode())
    return f"{base.name}+{adapter.name}-{digest.hexdigest()[:8]}"
