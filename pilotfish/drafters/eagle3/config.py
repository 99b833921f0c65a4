"""What an EAGLE-3 head's config.json says. Torch-free."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pilotfish.errors import UnsupportedModelError
from pilotfish.features import default_feature_layers
from pilotfish.models.store.folder import read_json
from pilotfish.models.store.head_config import HeadConfig
from pilotfish.models.store.tensor_folder import positive

_NUM_FEATURES = 3


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(HeadConfig):
    """Sizes of a head, and the target it belongs to."""

    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    feature_layers: tuple[int, int, int]
    """Layers of the target whose inputs are the low, middle and high feature."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_attention_heads % self.num_key_value_heads:
            raise UnsupportedModelError(
                f"{self.num_attention_heads} query heads cannot share {self.num_key_value_heads} key/value heads"
            )


def read_eagle3_config(folder: Path, *, num_target_layers: int) -> Eagle3Config:
    """Read config.json; a head that names no feature layers takes the published ones of its target.

    Raises: ModelNotFoundError without a config.json; UnsupportedModelError naming the field that is missing or wrong.
    """
    path = folder / "config.json"
    values = read_json(path)
    if values.get("draft_vocab_size") is None:
        raise UnsupportedModelError(f"{path} has no draft_vocab_size: {folder} holds no EAGLE-3 head")
    if values.get("num_hidden_layers", 1) != 1:
        raise UnsupportedModelError(f"{path}: {values['num_hidden_layers']} layers; a head of one layer is supported")
    rope = {**(values.get("rope_scaling") or {}), **(values.get("rope_parameters") or {})}
    if rope.get("rope_type", "default") != "default":
        raise UnsupportedModelError(f"{path}: rope_type {rope['rope_type']!r}; only the default one is supported")

    number = partial(positive, values, path)
    num_heads = number("num_attention_heads")
    return Eagle3Config(
        hidden_size=number("hidden_size"),
        intermediate_size=number("intermediate_size"),
        num_attention_heads=num_heads,
        num_key_value_heads=number("num_key_value_heads", num_heads),
        head_dim=number("head_dim", number("hidden_size") // num_heads),
        vocab_size=number("vocab_size"),
        draft_vocab_size=number("draft_vocab_size"),
        rms_norm_eps=float(values.get("rms_norm_eps", 1e-5)),
        rope_theta=float(rope.get("rope_theta", values.get("rope_theta", 10000.0))),
        max_position_embeddings=number("max_position_embeddings", 2048),
        feature_layers=_feature_layers(values, num_target_layers, path),
        target_model=str(values.get("target_model", "")),
        tokenizer_fingerprint=str(values.get("target_tokenizer_fingerprint", "")),
    )


def eagle3_config_json(config: Eagle3Config) -> dict[str, Any]:
    """The config.json that the published loaders and read_eagle3_config understand."""
    fields = asdict(config)
    layers, fingerprint = fields.pop("feature_layers"), fields.pop("tokenizer_fingerprint")
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        **fields,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        # vLLM's name and numbering: a feature is what enters the layer.
        "eagle_aux_hidden_state_layer_ids": list(layers),
        "target_tokenizer_fingerprint": fingerprint,
    }


def _feature_layers(values: dict[str, Any], num_target_layers: int, path: Path) -> tuple[int, int, int]:
    named = values.get("eagle_aux_hidden_state_layer_ids") or (values.get("eagle_config") or {}).get(
        "eagle_aux_hidden_state_layer_ids"
    )
    layers = tuple(named) if named else default_feature_layers(num_target_layers)
    if len(layers) != _NUM_FEATURES or any(
        not isinstance(layer, int) or not 0 <= layer < num_target_layers for layer in layers
    ):
        raise UnsupportedModelError(
            f"{path}: features of layers {list(layers)}; the target has layers 0 to {num_target_layers - 1} "
            f"and {_NUM_FEATURES} are needed"
        )
    low, middle, high = layers
    return low, middle, high
