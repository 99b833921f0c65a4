"""The target's features of what its cache holds, for drafters that live elsewhere.

They lie in slots of the same numbers as the keys and values, so that whatever the cache gives a sequence
(a shared prefix, blocks computed again after a preemption) comes with its features.

Legend: N blocks, F captured layers, H hidden size.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from pilotfish.config import Config
from pilotfish.drafter_registry import DRAFTERS
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.errors import ConfigError
from pilotfish.features import Features
from pilotfish.models.attention.paged import slots_of
from pilotfish.models.decoder import Decoder
from pilotfish.models.feature_codec import encode_features
from pilotfish.models.loading import LoadedModel
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)

MAX_FEATURE_TOKENS = 1024
"""Tokens whose features one verdict has, the newest ones: a frame stays small even for a wide target."""


class FeatureStore:
    """See the module. Not thread-safe."""

    def __init__(self, decoder: Decoder, layers: Sequence[int], hidden_size: int = 0) -> None:
        """Makes the decoder capture the layers. hidden_size: take memory for features of that size at once; 0: with
        the first step. Raises ValueError for a layer that it lacks."""
        decoder.capture(layers)
        self.layers = tuple(layers)
        self._decoder = decoder
        self._width = len(layers) * hidden_size
        self._pool = torch.empty(0)
        """[N * BLOCK_SIZE, F * H]"""
        self._num_blocks = 0

    def allocate(self, num_blocks: int) -> None:
        """Make room for num_blocks blocks, numbered as the decoder's; replaces what there was."""
        self._num_blocks = num_blocks
        self._pool = torch.empty(0)  # its memory is free before the next one's is taken
        if self._width:
            shape = num_blocks * BLOCK_SIZE, self._width
            self._pool = torch.zeros(shape, dtype=self._decoder.dtype, device=self._decoder.device)

    def keep(self, kept: Sequence[KeptRows]) -> None:
        """Take in a step right after it, when it is committed."""
        step_rows: list[int] = []
        slots: list[int] = []
        for rows in kept:
            step_rows.extend(rows.step_rows)
            places = range(rows.first_position, rows.end_position)
            slots.extend(slots_of(rows.sequence.block_ids, places))
        features = self._decoder.features
        if not len(self._pool):
            # Zeros that nobody has touched take no memory.
            self._pool = features.new_zeros(self._num_blocks * BLOCK_SIZE, features.shape[1])
        wanted = features.index_select(0, to_device(step_rows, torch.int64, features.device))
        self._pool.index_copy_(0, to_device(slots, torch.int64, features.device), wanted)

    def take(self, sequence: EngineSequence) -> Features | None:
        """What the sequence was asked for, which is answered with it; None when nothing was, or there is none."""
        request, end = sequence.take_feature_request(), sequence.num_computed_tokens
        if request is None:
            return None
        first = max(request.first_position, end - MAX_FEATURE_TOKENS)
        return encode_features(self.read(sequence, first, end), first, num_int8_layers=len(self.layers) * request.int8)

    def read(self, sequence: EngineSequence, first: int, end: int) -> Tensor:
        """[end - first, F * H] of the sequence's positions from first on, a copy; they must be computed."""
        return self._pool[slots_of(sequence.block_ids, range(first, end))]


def feature_bytes(num_tokens: int, num_layers: int, hidden_size: int, dtype: torch.dtype) -> int:
    """Memory of what is kept of so many tokens."""
    return num_tokens * num_layers * hidden_size * dtype.itemsize


def kept_layers(config: Config, num_layers: int) -> tuple[int, ...]:
    """The layers that target.feature_layers asks for, of a target of num_layers; none where nothing is kept."""
    layers = config.target.feature_layers
    if layers == "auto":
        layers = config.draft.proposer
    if isinstance(layers, str):
        kind = DRAFTERS.get(layers)
        layers = () if kind is None or kind.feature_layers is None else kind.feature_layers(num_layers)
    return layers


def build_feature_store(config: Config, loaded: LoadedModel, decoder: Decoder) -> FeatureStore | None:
    """The store that target.feature_layers asks for; None: none, also where a drafter in the target needs other layers
    than the draft pool's and neither was asked for by number. Raises ConfigError for layers that cannot be kept."""
    layers = kept_layers(config, loaded.model.config.get_text_config().num_hidden_layers)
    if not layers:
        return None
    # On a GPU before steps are recorded, which take what is left.
    hidden_size = loaded.model.config.get_text_config().hidden_size if decoder.device.type == "cuda" else 0
    try:
        return FeatureStore(decoder, layers, hidden_size)
    except ConfigError as error:
        if config.target.feature_layers != "auto":
            raise
        logger.warning("the draft pool's %s gets no features: %s", config.draft.proposer, error)
        return None
    except ValueError as error:
        raise ConfigError(f"target.feature_layers is {list(layers)}: {error}") from None
