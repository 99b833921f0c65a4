"""Into how many ranks a model can be cut, and how large a part is. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pilotfish.errors import ConfigError, UnsupportedModelError
from pilotfish.models.store.folder import text_fields


class TensorCut(StrEnum):
    """How a parameter is distributed."""

    ROWS = "rows"
    """Cut by the first dimension, a linear's outputs, in equal parts: whole heads, or MLP neurons."""
    COLUMNS = "columns"
    """Cut by the second dimension, a linear's inputs: the ranks' results are added."""
    VOCABULARY = "vocabulary"
    """Cut by the first dimension, in parts rounded up: the last rank pads."""
    WHOLE = "whole"
    """Each rank has all of it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A rank's part of a dimension."""

    start: int
    end: int
    padded: int
    """Size of the part on every rank, at least end - start."""


def bounds(size: int, rank: int, num_ranks: int) -> Bounds:
    """The part of a rank, in parts of equal size but for the last ones."""
    padded = -(-size // num_ranks)
    start = min(rank * padded, size)
    return Bounds(start, min(start + padded, size), padded)


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What must come out even."""

    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    """Neurons of an MLP; of several sizes their greatest common divisor."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> ModelSizes:
        """The sizes in config.json. Raises UnsupportedModelError for an architecture that has no such fields."""
        fields = text_fields(config)
        num_heads, intermediate = fields.get("num_attention_heads"), fields.get("intermediate_size")
        if not num_heads or not intermediate:
            raise UnsupportedModelError(
                f"a {fields.get('model_type')!r} model cannot be cut into ranks: its config.json lacks "
                "num_attention_heads or intermediate_size"
            )
        sizes = intermediate if isinstance(intermediate, list) else [intermediate]
        return cls(num_heads, fields.get("num_key_value_heads") or num_heads, math.gcd(*sizes))

    def rank_counts(self) -> list[int]:
        """The numbers of ranks that work, ascending."""
        common = math.gcd(self.num_heads, self.num_kv_heads, self.intermediate_size)
        return [count for count in range(1, common + 1) if common % count == 0]

    def require(self, num_ranks: int, *, model: str, setting: str) -> None:
        """Raise ConfigError, naming the numbers that work, unless num_ranks does; setting: what asked for it."""
        possible = self.rank_counts()
        if num_ranks not in possible:
            raise ConfigError(
                f"{setting} is {num_ranks}; {model} has {self.num_heads} heads, {self.num_kv_heads} key/value heads "
                f"and {self.intermediate_size} MLP neurons, which go evenly into "
                f"{', '.join(str(count) for count in possible)}: choose one of these"
            )
