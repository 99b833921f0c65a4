"""The decoder that rank 0's engine sees: every call is made by all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from torch import Tensor, nn

from pilotfish.config import EngineConfig
from pilotfish.errors import InternalError
from pilotfish.models.decoder import KVPool, StepInput
from pilotfish.models.gpu_memory import measure_kv_room
from pilotfish.models.kv_room import KVRoom
from pilotfish.parallel.channel import RankChannel
from pilotfish.parallel.messages import Abilities, Allocate, Join, Measure, Measured, MoveKV, Order, RecordGraphs
from pilotfish.parallel.rehearsal import RankPart
from pilotfish.parallel.sharded_model import whole_embedding
from pilotfish.parallel.step_codec import StepPacker
from pilotfish.parallel.watch import end_process

T = TypeVar("T")
_HANG_UP_S = 0.2


class ParallelDecoder:
    """See Decoder. Rank 0's own part, and the orders to the others.

    An error in a call that all ranks have begun cannot be survived: what the others have written to their caches,
    and whether they still wait for this one, is unknown. It ends the process.
    """

    def __init__(
        self,
        part: RankPart,
        channel: RankChannel,
        abilities: Abilities,
        folder: Path,
        on_loss: Callable[[list[int]], NoReturn],
    ) -> None:
        """abilities: what all ranks can run. folder: of the model. on_loss: ends the process where these ranks are
        lost."""
        part.agree(abilities)
        decoder = part.decoder
        self.name = f"{decoder.name}, {channel.num_ranks} ranks"
        self.vocab_size = decoder.vocab_size
        self.max_context_tokens = decoder.max_context_tokens
        self.dtype = decoder.dtype
        self.device = decoder.device
        self.num_graphs = decoder.num_graphs
        self.row_attention = decoder.row_attention
        self.graph_plan = decoder.graph_plan
        self.features: Tensor
        self.last_hidden: Tensor
        self._decoder = decoder
        self._group = part.group
        self._abilities = abilities
        self._channel = channel
        self._folder = folder
        self._on_loss = on_loss
        self._packer = StepPacker()
        self._captures = False

    @property
    def input_embeddings(self) -> nn.Module:
        """See TransformersDecoder; whole, and without the other ranks. Raises ModelError."""
        return whole_embedding(self._folder, self._decoder.model)

    def join(self, store: Path) -> None:
        """Connect the group of all ranks; store: see ProcessGroup.connect."""
        self._together(Join(str(store), self._abilities), lambda: self._group.connect(store))

    def capture(self, layers: Sequence[int]) -> None:
        # The residual stream is whole on every rank: nobody else need keep it.
        self._decoder.capture(layers)
        self._captures = True

    def allocate(self, num_blocks: int) -> KVPool:
        return self._together(Allocate(num_blocks), lambda: self._decoder.allocate(num_blocks))

    def measure_kv_rooms(self, engine: EngineConfig, extra_bytes_per_block: int) -> list[KVRoom]:
        """Rooms of the ranks' GPUs, in their order: see measure_kv_room. Only rank 0 keeps what is extra.

        Raises UnavailableError when a rank is gone.
        """
        own = self._together(Measure(), lambda: measure_kv_room(self._decoder, engine, extra_bytes_per_block))
        rooms = [own]
        for answer in self._channel.collect():
            if not isinstance(answer, Measured):
                raise InternalError(f"a rank that was to measure answered {answer}")
            rooms.append(answer.room)
        return rooms

    def record_graphs(self) -> None:
        """See TransformersDecoder. All ranks record the same steps in the same order."""
        self._together(RecordGraphs(), self._decoder.record_graphs)

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        if moves:
            self._together(MoveKV(moves), lambda: self._decoder.move_kv(moves))

    def forward(self, step: StepInput) -> Tensor:
        logits = self._together(self._packer.pack(step), lambda: self._decoder.forward(step))
        if self._captures:
            self.features = self._decoder.features
            self.last_hidden = self._decoder.last_hidden
        return logits

    def _together(self, order: Order, run: Callable[[], T]) -> T:
        try:
            self._channel.broadcast(order)
            return run()
        except Exception as error:
            # A lost rank is what most errors of collective operations come from.
            if lost := self._channel.wait_for_loss(_HANG_UP_S):
                self._on_loss(lost)
            end_process(f"a call of all ranks failed on rank 0: {type(error).__name__}: {error}: this replica ends")
