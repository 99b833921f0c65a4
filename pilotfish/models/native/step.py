"""The rows of a step as the kernels read them."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from pilotfish.models.attention.paged import slots_of
from pilotfish.models.decoder import StepInput
from pilotfish.models.native.layout import StepStruct, huge_empty


class NativeStepRows:
    """Arrays that a StepStruct points to: they must outlive it.

    Plain arrays: a torch operation here could leave its OpenMP threads spinning on the kernels' cores.
    """

    def __init__(self, step: StepInput) -> None:
        self._table_width = max(len(part.block_ids) for part in step.slices)
        self._tables = array("q")
        self._row_table = array("q")
        self._slots = array("q")
        self._roots = array("q")
        self._ancestors = array("Q")
        for index, part in enumerate(step.slices):
            self._tables.extend(part.block_ids)
            self._tables.extend([0] * (self._table_width - len(part.block_ids)))
            self._row_table.extend([index] * part.num_rows)
            self._slots.extend(slots_of(part.block_ids, part.places))
            roots, ancestors = part.sight()
            self._roots.extend(roots)
            self._ancestors.extend(ancestors)
        self._token_ids = array("q", step.token_ids)
        self._positions = array("q", step.positions)
        self._logit_rows = array("q", step.logit_rows)

    def struct(self, logits_pointer: int) -> StepStruct:
        """The struct for the kernels. logits_pointer: float32 [R, V], written by the forward."""
        return StepStruct(
            rows=len(self._token_ids),
            num_logit_rows=len(self._logit_rows),
            token_ids=_pointer(self._token_ids),
            positions=_pointer(self._positions),
            slots=_pointer(self._slots),
            row_table=_pointer(self._row_table),
            tables=_pointer(self._tables),
            table_width=self._table_width,
            logit_rows=_pointer(self._logit_rows),
            logits=logits_pointer,
            roots=_pointer(self._roots),
            ancestors=_pointer(self._ancestors),
        )


class LogitsBuffer:
    """Memory for logits, kept from step to step: fresh memory would cost a page fault every 1,024 of them."""

    def __init__(self, vocab_size: int) -> None:
        self._logits = torch.empty(0, vocab_size)

    def of(self, num_rows: int) -> Tensor:
        """float32 [num_rows, V], uninitialised; the same memory each time."""
        vocab_size = self._logits.shape[1]
        if self._logits.shape[0] < num_rows:
            self._logits = huge_empty(2 * num_rows * vocab_size).view(torch.float32).view(num_rows, vocab_size)
        return self._logits[:num_rows]


def _pointer(values: array[int]) -> int:
    return values.buffer_info()[0]
