"""What the config.json of a trained exit says. Torch-free."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pilotfish.errors import ConfigError, ModelError, UnsupportedModelError
from pilotfish.models.store.folder import read_json
from pilotfish.models.store.head_config import HeadConfig, HeadTarget
from pilotfish.models.store.tensor_folder import positive

MODEL_TYPE = "early_exit"


@dataclass(frozen=True, kw_only=True)
class ExitConfig(HeadConfig):
    """The place of an exit in its target; the target's config.json has the block's sizes."""

    exit_layer: int
    """Layers of the target that run before the block."""

    def check_target(self, target: HeadTarget, *, source: str) -> None:
        super().check_target(target, source=source)
        if self.exit_layer >= target.num_layers:
            raise ModelError(
                f"{source} was trained for another target: it leaves after {self.exit_layer} layers, and the target "
                f"has {target.num_layers}"
            )


def chosen_layer(wanted: int, num_layers: int, option: str) -> int:
    """Layers to leave a target of num_layers after; 0 are half of them. Raises ConfigError, which names the option."""
    chosen = wanted or num_layers // 2
    if not 1 <= chosen < num_layers:
        raise ConfigError(
            f"{option} is {chosen}; a target of {num_layers} layers can be left after 1 to {num_layers - 1}"
        )
    return chosen


def read_exit_config(folder: Path) -> ExitConfig:
    """Read config.json.

    Raises: ModelNotFoundError without one; UnsupportedModelError naming the field that is missing or wrong.
    """
    path = folder / "config.json"
    values = read_json(path)
    if values.get("model_type") != MODEL_TYPE:
        raise UnsupportedModelError(f"{path}: model_type is not {MODEL_TYPE}: {folder} holds no trained exit")
    number = partial(positive, values, path)
    return ExitConfig(
        exit_layer=number("exit_layer"),
        hidden_size=number("hidden_size"),
        vocab_size=number("vocab_size"),
        draft_vocab_size=number("truncated_vocab_size"),
        target_model=str(values.get("target_model", "")),
        tokenizer_fingerprint=str(values.get("target_tokenizer_fingerprint", "")),
    )


def exit_config_json(config: ExitConfig) -> dict[str, Any]:
    """The config.json that read_exit_config understands."""
    fields = asdict(config)
    size, fingerprint = fields.pop("draft_vocab_size"), fields.pop("tokenizer_fingerprint")
    return {
        "model_type": MODEL_TYPE,
        **fields,
        "truncated_vocab_size": size,  # as in Medusa's
        "target_tokenizer_fingerprint": fingerprint,
    }
