"""What a rank can run, found out before it meets the others: one that ran a layer once more than they do, or another
graph, would wait for sums that nobody adds.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.parallel.group import ProcessGroup
from pilotfish.parallel.messages import Abilities
from pilotfish.types import BLOCK_SIZE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RankPart:
    """A rank's part of the model, and its group, which is not connected yet."""

    decoder: TransformersDecoder
    group: ProcessGroup
    uncompile: Callable[[], None] | None = None
    """Undoes compile_layers (with falls_back False); None: layers are not to be compiled."""

    def rehearse(self) -> Abilities:
        """Compile what the part's steps run, by computing two of them alone, one of one row and one of several."""
        abilities = Abilities(kernels=self.decoder.row_attention is not None, compiled=self.uncompile is not None)
        if self.uncompile is None:
            return abilities
        self.decoder.allocate(2)
        try:
            for num_rows in (1, BLOCK_SIZE):
                rows = range(num_rows)
                self.decoder.forward(StepInput([0] * num_rows, rows, [SequenceSlice(0, num_rows, 0, [1])], rows))
        except Exception as error:
            # The compilers' own, of any kind.
            logger.warning("this rank cannot compile its layers: %s", textwrap.shorten(str(error), 300))
            return Abilities(kernels=abilities.kernels, compiled=False)
        return abilities

    def agree(self, common: Abilities) -> None:
        """Run as all ranks can."""
        if self.uncompile is not None and not common.compiled:
            self.uncompile()
        if not common.kernels:
            self.decoder.use_sdpa()


def common_abilities(ranks: Iterable[Abilities]) -> Abilities:
    """What all of them can; the log says what rank 0 must do without because of others."""
    first, *others = ranks
    common = Abilities(
        kernels=first.kernels and all(rank.kernels for rank in others),
        compiled=first.compiled and all(rank.compiled for rank in others),
    )
    for name, consequence in (("kernels", "attention on SDPA without graphs"), ("compiled", "layers uncompiled")):
        lacking = [rank for rank, each in enumerate(others, start=1) if not getattr(each, name)]
        if lacking and getattr(first, name):
            logger.warning("%s on all ranks, because of ranks %s: their log says why", consequence, lacking)
    return common
