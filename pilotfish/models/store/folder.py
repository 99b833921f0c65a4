"""What a model folder says about itself in its JSON files. Torch-free."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from pilotfish.errors import ModelError, ModelNotFoundError, UnsupportedModelError

_CONTEXT_NAMES = ("max_seq_len", "seq_length")
_UNLIMITED_CONTEXT = 2048
"""Context of an architecture that sets no limit (Mamba, BLOOM), where config.json says nothing: as vLLM has it."""
_LFS_POINTER = b"version https://git-lfs.github.com/"
"""How a file begins that `git clone` without Git LFS leaves in place of a large one."""
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """The facts of config.json and generation_config.json that Pilotfish needs."""

    model_type: str
    """Architecture name of transformers: llama, qwen3, ..."""
    vocab_size: int
    """Width of the logits; may exceed the tokenizer's vocabulary (padding rows)."""
    max_context_tokens: int
    """Prompt plus output at most."""
    eos_token_ids: frozenset[int]
    """Tokens that end an answer."""
    config: dict[str, Any]
    """The content of config.json."""


def check_model_folder(folder: Path) -> None:
    """Check that the folder holds a model that can be loaded safely.

    Raises: ModelNotFoundError when a file is missing; UnsupportedModelError when the weights are pickles only, or are
    an encoder-decoder's, a draft head's or an adapter's.
    """
    _require_no_adapter(folder)
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"{folder} has no config.json: it holds no model")
    config = read_json(folder / "config.json")
    _require_decoder(folder, config)
    _require_no_head(folder, config)
    if not any(folder.glob("*.safetensors")):
        if any(next(folder.glob(pattern), None) for pattern in _PICKLES):
            raise UnsupportedModelError(
                f"{folder} holds pickled weights only, and loading a pickle runs code: convert it to safetensors"
            )
        raise ModelNotFoundError(f"{folder} has no *.safetensors file")
    if not (folder / "tokenizer.json").is_file():
        raise ModelNotFoundError(
            f"{folder} has no tokenizer.json: load its tokenizer with transformers' AutoTokenizer "
            "and save_pretrained it there"
        )


def check_weights(folder: Path) -> None:
    """Raise ModelError for weights that are cut off or no safetensors, by their headers."""
    for path in weight_files(folder):
        with _opened(path):
            pass


def _require_no_adapter(folder: Path) -> None:
    """Raise UnsupportedModelError for an adapter, also one beside a model: it would be ignored."""
    path = folder / "adapter_config.json"
    if not path.is_file():
        return
    if (folder / "config.json").is_file():
        raise UnsupportedModelError(
            f"{folder} holds an adapter (adapter_config.json) beside a model: put it into a folder of its own, and "
            "name that in target.lora (`pilotfish serve MODEL --lora FOLDER`); or take it away, to serve the model "
            "without it"
        )
    base = read_json(path).get("base_model_name_or_path") or "MODEL"
    raise UnsupportedModelError(
        f"{folder} holds an adapter and no model: serve its base model with it (`pilotfish serve {base} --lora "
        f"{folder}`)"
    )


def _require_decoder(folder: Path, config: dict[str, Any]) -> None:
    """Raise UnsupportedModelError for what reads a text with a model of its own."""
    if config.get("is_encoder_decoder"):
        raise UnsupportedModelError(
            f"{folder} holds an encoder-decoder ({config.get('model_type')}): only decoders are served, which go on "
            "with their own text; take a causal language model (docs/models.md)"
        )


def _require_no_head(folder: Path, config: dict[str, Any]) -> None:
    """Raise UnsupportedModelError for what only drafts on a target's hidden states."""
    if config.get("draft_vocab_size") is not None:
        raise UnsupportedModelError(
            f"{folder} holds an EAGLE-3 head and no model: name it in draft.head (proposer eagle3 of the draft "
            "service) or target.drafter.model (in the target)"
        )
    if config.get("model_type") == "early_exit":
        raise UnsupportedModelError(
            f"{folder} holds a target's trained exit and no model: name it in target.drafter.model (proposer "
            "early_exit)"
        )


@functools.cache
def _defaults() -> dict[str, dict[str, Any]]:
    """Defaults by model_type and field: transformers' value, or the architecture's own name of the field and its
    value."""
    table: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "config_defaults.json").read_bytes())
    return table


def text_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json says of the language model, as transformers' `get_text_config()` does: multimodal models keep
    its fields one level down, some architectures have names of their own for sizes, and sizes that are not there have
    defaults (scripts/config_defaults.py)."""
    fields = {**config, **(config.get("text_config") or {})}
    for name, default in _defaults().get(str(fields.get("model_type")), {}).items():
        own, value = default if isinstance(default, list) else (name, default)
        value = fields.get(own, value)
        if name not in fields and value is not None:
            fields[name] = value
    for name in _CONTEXT_NAMES:  # of architectures that set no limit to it
        fields.setdefault("max_position_embeddings", fields.get(name))
    if fields["max_position_embeddings"] is None and fields.get("model_type") in _defaults():
        fields["max_position_embeddings"] = _UNLIMITED_CONTEXT
    return fields


def read_metadata(folder: Path) -> ModelMetadata:
    """Read a model folder's metadata.

    Raises: ModelNotFoundError when config.json is missing or broken; UnsupportedModelError when a needed field is, or
    for an encoder-decoder.
    """
    config = read_json(folder / "config.json")
    _require_decoder(folder, config)
    fields = text_fields(config)
    vocab_size, max_context_tokens = fields.get("vocab_size"), _context_tokens(fields)
    if not isinstance(vocab_size, int) or not isinstance(max_context_tokens, int):
        raise UnsupportedModelError(
            f"the config.json of {folder} (architecture {config.get('model_type')!r}) lacks vocab_size or "
            "max_position_embeddings, which have no defaults for it: take another model (docs/models.md)"
        )
    generation_path = folder / "generation_config.json"
    generation = read_json(generation_path) if generation_path.is_file() else {}
    return ModelMetadata(
        model_type=str(config.get("model_type", "")),
        vocab_size=vocab_size,
        max_context_tokens=max_context_tokens,
        eos_token_ids=frozenset({*_token_ids(fields.get("eos_token_id")), *_token_ids(generation.get("eos_token_id"))}),
        config=config,
    )


def _context_tokens(fields: Mapping[str, Any]) -> int | None:
    """Context that the model takes. With longrope (2402.13753) it is the one of the training: beyond, all angles
    change, and cached keys cannot."""
    longest: int | None = fields.get("max_position_embeddings")
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if longest is None or "short_factor" not in rope:
        return longest
    trained = fields.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings")
    return min(longest, trained or longest)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises: ModelNotFoundError when the file is missing or is no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelNotFoundError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelNotFoundError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelNotFoundError(f"{path} is not a JSON object")
    return value


def count_parameters(folder: Path) -> int:
    """Number of stored parameters, from the headers of the safetensors files (tied weights count once)."""
    return sum(prod(shape) for _, shape in tensor_shapes(folder))


def tensor_shapes(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Name and shape of each tensor. Raises ModelError for a file that is missing or broken."""
    for path in weight_files(folder):
        with _opened(path) as file:
            shapes = [(name, file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118 -- no mapping
        yield from shapes


@contextmanager
def _opened(path: Path) -> Iterator[Any]:  # safe_open has no types
    """The file, whose header and size are right. Raises ModelError."""
    try:
        with safe_open(path, "np") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be read: {_remedy(path, error)}") from error


def _remedy(path: Path, error: Exception) -> str:
    try:
        with path.open("rb") as file:
            is_pointer = file.read(len(_LFS_POINTER)) == _LFS_POINTER
    except FileNotFoundError:
        return "there is no such file; download the model again"
    except OSError as failure:  # safetensors says of these as well that there is no such file
        return failure.strerror or str(failure)
    if is_pointer:
        return "it is Git LFS's pointer to the weights; run `git lfs pull` in its folder"
    return f"{error}; it is cut off, or no safetensors file of this version: download it again"


def weight_files(folder: Path) -> list[Path]:
    """The weight files that transformers reads: others may hold the same weights again (Mistral's consolidated
    ones)."""
    if (single := folder / "model.safetensors").is_file():
        return [single]
    if (index := folder / "model.safetensors.index.json").is_file():
        return [folder / name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
    return sorted(folder.glob("*.safetensors"))


def folder_bytes(folder: Path) -> int:
    """Size of the folder's files in bytes."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _token_ids(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else value
