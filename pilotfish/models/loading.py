"""Loading a model's weights into transformers (torch)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.quantizers import AutoHfQuantizer
from transformers.utils import logging

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.models.architecture import auto_class
from pilotfish.models.file_pages import move_weights
from pilotfish.models.self_check.check import serving_path_of
from pilotfish.models.self_check.serving_path import ServingPath
from pilotfish.models.store.catalogue import merged_id
from pilotfish.models.store.folder import ModelMetadata, check_weights, read_json, read_metadata
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model ready for inference, with what the handshake says about it."""

    model: PreTrainedModel
    """The model in eval mode; no parameter requires a gradient."""
    folder: Path
    model_id: str
    vocab_size: int
    """Width of the logits."""
    max_context_tokens: int
    fingerprint: str
    """The tokenizer's."""
    path: ServingPath | None = None
    """What `require_supported` found; None: it was not asked."""


def load_model(
    name_or_path: str,
    *,
    cache_dir: Path | str,
    adapter: str = "",
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
) -> LoadedModel:
    """Load a model (catalogue name, hub id or local folder), pulling it into the cache if it is not there.

    Only safetensors are read and no code of the model runs. adapter: see pull_model.
    Raises: ModelNotFoundError, ModelDownloadError, UnsupportedModelError, ModelError.
    """
    folder = pull_model(name_or_path, cache_dir, adapter=adapter)
    metadata = read_metadata(folder)
    path = require_supported(metadata, folder)
    check_weights(folder)
    model = read_weights(folder, dtype).eval().requires_grad_(False)
    move_weights(model, torch.device(device))
    return LoadedModel(
        model=model,
        folder=folder,
        model_id=merged_id(name_or_path, adapter),
        vocab_size=metadata.vocab_size,
        max_context_tokens=metadata.max_context_tokens,
        fingerprint=tokenizer_fingerprint(folder),
        path=path,
    )


def read_weights(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The whole model of a folder, on the CPU. Weights stored in that dtype are views of the files, see file_pages.

    Raises ModelError for weights that are missing or broken, UnsupportedModelError for FP8 in another dtype than
    bfloat16.
    """
    if _quantiser(read_metadata(folder)) == "fp8" and dtype != torch.bfloat16:  # transformers would mix the two
        raise UnsupportedModelError(
            f"the weights in {folder} are stored in FP8, which is computed in bfloat16: set engine.dtype to bfloat16, "
            "or take the model as it was before it was quantised"
        )
    silence_transformers()
    kind = auto_class(str(read_json(folder / "config.json").get("model_type"))) or AutoModelForCausalLM
    try:
        model, report = kind.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise ModelError(f"the weights in {folder} cannot be loaded: {error}") from error
    # transformers fills what is missing with random numbers.
    if missing := sorted(report["missing_keys"]):
        raise ModelError(f"the weights in {folder} lack {len(missing)} tensors that config.json asks for: {missing[0]}")
    return model


def require_supported(metadata: ModelMetadata, folder: Path) -> ServingPath:
    """The path on which it is computed. Reads no weights.

    Raises UnsupportedModelError unless it is a causal language model that transformers knows and that a decoder of ours
    computes as transformers does; ModelError for a config.json that makes no model.
    """
    if auto_class(metadata.model_type) is None:
        raise UnsupportedModelError(
            f"{folder} holds an unknown architecture {metadata.model_type!r}: transformers has no causal language "
            "model of that name, and code that comes with a model is never run"
        )
    silence_transformers()
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # each architecture checks its own fields in its own way
        raise ModelError(f"{folder / 'config.json'} makes no model: {error}") from error
    _require_quantiser(metadata, folder)
    return serving_path_of(config)


def _quantiser(metadata: ModelMetadata) -> str:
    """transformers' name of what the weights were quantised with; empty: they are plain."""
    return str((metadata.config.get("quantization_config") or {}).get("quant_method", ""))


def _require_quantiser(metadata: ModelMetadata, folder: Path) -> None:
    """Raise UnsupportedModelError for weights whose quantiser is not installed, or does not run here."""
    if not (method := _quantiser(metadata)):
        return
    try:
        AutoHfQuantizer.from_config(metadata.config["quantization_config"]).validate_environment(device_map=None)
    except (ImportError, RuntimeError, ValueError) as error:
        raise UnsupportedModelError(
            f"the weights in {folder} were quantised by {method}, which needs a package that is not installed, or "
            f"another machine: install it beside Pilotfish, or take the model as it was before. transformers says: "
            f"{error}"
        ) from error


def silence_transformers() -> None:
    """Show transformers' errors only: its bars and warnings speak to its own users. Mutates its process-wide
    settings."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
