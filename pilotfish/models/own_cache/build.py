"""Makes the decoder of a model that transformers computes with its own cache."""

from __future__ import annotations

import logging

import torch

from pilotfish.config import EngineConfig
from pilotfish.errors import ConfigError, UnsupportedModelError
from pilotfish.models.determinism import blocks_needed, is_batch_invariant
from pilotfish.models.file_pages import move_weights
from pilotfish.models.loading import LoadedModel
from pilotfish.models.own_cache.decoder import OwnCacheDecoder
from pilotfish.models.own_cache.text_cache import Rows
from pilotfish.models.self_check.serving_path import ServingPath

logger = logging.getLogger(__name__)


def build_own_cache_decoder(
    loaded: LoadedModel, engine: EngineConfig, path: ServingPath, device: torch.device, *, max_context_tokens: int
) -> OwnCacheDecoder:
    """Take over the loaded model, to compute on the device.

    On a CPU with `deterministic` rows are computed in tiles, or singly where their logits depend on others even so.
    Raises ConfigError for quantised weights; UnsupportedModelError for a dtype that transformers cannot compute in.
    """
    if engine.quantization not in ("none", "lossless"):
        raise ConfigError(
            f"engine.quantization is {engine.quantization}, and {loaded.model_id} is served {path}; that computes with "
            "its weights as they are: set engine.quantization to none"
        )
    logger.warning("%s is served %s", loaded.model_id, path)
    move_weights(loaded.model, device)
    assert path.own_cache_rows is not None
    plain = _decoder(loaded, engine, path.own_cache_rows, max_context_tokens)
    try:
        is_cuttable = plain.is_cuttable
    except Exception as error:  # the check of the start computed in float32
        raise UnsupportedModelError(
            f"transformers cannot compute {loaded.model_id} in {engine.dtype} ({type(error).__name__}: {error}): set "
            "engine.dtype to float32"
        ) from error
    if not engine.deterministic or device.type != "cpu" or plain.rows is Rows.SINGLE:
        return plain
    if is_cuttable:
        tiled = _decoder(loaded, engine, Rows.TILES, max_context_tokens)
        tiled.allocate(blocks_needed())
        if is_batch_invariant(tiled):
            return tiled
    logger.warning("rows are computed singly, so that drafts change no text: they do not pay (engine.deterministic)")
    return _decoder(loaded, engine, Rows.SINGLE, max_context_tokens)


def _decoder(loaded: LoadedModel, engine: EngineConfig, rows: Rows, max_context_tokens: int) -> OwnCacheDecoder:
    return OwnCacheDecoder(
        loaded.model, rows=rows, max_context_tokens=max_context_tokens, max_texts=engine.max_sequences
    )
