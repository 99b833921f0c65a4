"""The decoder that rank 0's engine sees: every call is made by all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from torch import Tensor

from pilotfish.models.decoder import Decoder, KVPool, StepInput
from pilotfish.parallel.channel import RankChannel
from pilotfish.parallel.messages import Allocate, MoveKV, Order, Ping, Pong
from pilotfish.parallel.step_codec import StepPacker
from pilotfish.parallel.watch import end_process

T = TypeVar("T")
_HANG_UP_S = 0.2


@dataclass(frozen=True, slots=True)
class ChannelTimes:
    """Where the time of one order went, from the call on rank 0 to the last rank."""

    pack_ms: float
    send_ms: float
    """Encoded, and written for every rank: from here on rank 0 computes."""
    arrive_ms: float
    """From packed to decoded by the rank that was ready last."""
    unpack_ms: float
    there_ms: float
    """Until the last rank could begin to compute. What a step waits for at most: nothing is answered, the ranks meet
    in their first sum."""
    round_trip_ms: float


class ParallelDecoder:
    """See Decoder. Rank 0's own part, and the orders to the others.

    An error in a call that all ranks have begun cannot be survived: what the others have written to their caches,
    and whether they still wait for this one, is unknown. It ends the process.
    """

    def __init__(
        self, decoder: Decoder, channel: RankChannel, *, on_failure: Callable[[str], NoReturn] = end_process
    ) -> None:
        self.name = f"{decoder.name}, {channel.num_ranks} ranks"
        self.vocab_size = decoder.vocab_size
        self.max_context_tokens = decoder.max_context_tokens
        self.dtype = decoder.dtype
        self.device = decoder.device
        self.features: Tensor
        self.last_hidden: Tensor
        self._decoder = decoder
        self._channel = channel
        self._packer = StepPacker()
        self._on_failure = on_failure
        self._captures = False

    def capture(self, layers: Sequence[int]) -> None:
        # The residual stream is whole on every rank: nobody else need keep it.
        self._decoder.capture(layers)
        self._captures = True

    def allocate(self, num_blocks: int) -> KVPool:
        return self._together(Allocate(num_blocks), lambda: self._decoder.allocate(num_blocks))

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        if moves:
            self._together(MoveKV(moves), lambda: self._decoder.move_kv(moves))

    def forward(self, step: StepInput) -> Tensor:
        logits = self._together(self._packer.pack(step), lambda: self._decoder.forward(step))
        if self._captures:
            self.features, self.last_hidden = self._decoder.features, self._decoder.last_hidden
        return logits

    def ping(self, step: StepInput) -> ChannelTimes:
        """Send a step that all ranks unpack but none computes; they say when they had it."""
        start_ns = time.monotonic_ns()
        order = Ping(self._packer.pack(step))
        packed_ns = time.monotonic_ns()
        self._channel.broadcast(order)
        sent_ns = time.monotonic_ns()
        answers = [answer for answer in self._channel.collect() if isinstance(answer, Pong)]
        end_ns = time.monotonic_ns()
        last = max(answers, key=lambda answer: answer.unpacked_ns)
        return ChannelTimes(
            pack_ms=(packed_ns - start_ns) / 1e6,
            send_ms=(sent_ns - packed_ns) / 1e6,
            arrive_ms=(last.received_ns - packed_ns) / 1e6,
            unpack_ms=(last.unpacked_ns - last.received_ns) / 1e6,
            there_ms=(last.unpacked_ns - start_ns) / 1e6,
            round_trip_ms=(end_ns - start_ns) / 1e6,
        )

    def _together(self, order: Order, run: Callable[[], T]) -> T:
        try:
            self._channel.broadcast(order)
            return run()
        except Exception as error:
            # A lost rank is what most errors of collective operations come from.
            lost = [
                f"rank {rank} of {self._channel.num_ranks} is lost" for rank in self._channel.wait_for_loss(_HANG_UP_S)
            ]
            cause = ", ".join(lost) or f"a call of all ranks failed on rank 0: {type(error).__name__}: {error}"
            self._on_failure(f"{cause}: this replica ends")
