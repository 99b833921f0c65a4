"""What does one round cost besides the models?

A round proposes and verifies for every sequence: over gRPC to a draft replica and back, then to a target
replica and back, on the loopback interface. The engines compute nothing (`shared/echo.py`); as in production they and
the replicas' fronts are processes of their own.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from time import perf_counter_ns

import uvloop
from shared.echo import replica
from shared.report import Report, parser

from pilotfish.errors import PilotfishError
from pilotfish.messages import Event, OpenSequence, Proposal, Propose, Verdict, Verify
from pilotfish.rpc.frames import Service
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.stream import MuxStream
from pilotfish.types import LoadReport, SamplingParams

NUM_DRAFT_TOKENS = 5
PROMPT_TOKENS = 64
WARM_UP_ROUNDS = 50
LIMITS_MS = {1: 1.0, 64: 4.0}
"""Sequences -> asked median of a round of all of them."""


class Rounds:
    """The orchestrator's part, reduced to its messages."""

    def __init__(self, num_sequences: int) -> None:
        self._sequence_ids = range(1, num_sequences + 1)
        self._lengths = dict.fromkeys(self._sequence_ids, PROMPT_TOKENS)
        # The Verdict's tokens: what the next Propose states.
        self._new_token_ids: dict[int, tuple[int, ...]] = dict.fromkeys(self._sequence_ids, ())
        self._num_open = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, target_address: str, draft_address: str, num_rounds: int) -> list[float]:
        """Milliseconds of each round of all sequences."""
        target = await self._connect(target_address, "target")
        draft = await self._connect(draft_address, "draft")
        self._target = target
        sampling = SamplingParams(temperature=0, max_tokens=1 << 19)
        prompt = tuple(index % 256 for index in range(PROMPT_TOKENS))
        try:
            for sequence_id in self._sequence_ids:
                for stream in (target, draft):
                    stream.send(OpenSequence(sequence_id, prompt, sampling))
            times = [await self._round(draft) for _ in range(WARM_UP_ROUNDS + num_rounds)]
            return times[WARM_UP_ROUNDS:]
        finally:
            await target.close()
            await draft.close()

    async def _connect(self, address: str, service: Service) -> MuxStream:
        return await MuxStream.connect(
            address,
            service=service,
            hello=Hello(peer="benchmark"),
            on_events=self._on_events,
            on_load=self._on_load,
            on_lost=self._on_lost,
        )

    async def _round(self, draft: MuxStream) -> float:
        self._done = asyncio.get_running_loop().create_future()
        self._num_open = len(self._sequence_ids)
        start_ns = perf_counter_ns()
        for sequence_id in self._sequence_ids:
            new_token_ids = self._new_token_ids[sequence_id]
            draft.send(Propose(sequence_id, self._lengths[sequence_id], new_token_ids, NUM_DRAFT_TOKENS))
        await self._done
        return (perf_counter_ns() - start_ns) / 1e6

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Proposal):
                self._target.send(Verify(event.sequence_id, event.base_length, event.draft_token_ids))
            elif isinstance(event, Verdict):
                self._new_token_ids[event.sequence_id] = event.token_ids
                self._lengths[event.sequence_id] += len(event.token_ids)
                self._num_open -= 1
                if self._num_open == 0:
                    self._done.set_result(None)

    def _on_load(self, load: LoadReport) -> None:
        pass

    def _on_lost(self, error: PilotfishError) -> None:
        if not self._done.done():
            self._done.set_exception(error)


async def measure(num_rounds: int, report: Report) -> None:
    async with replica("target") as target, replica("draft") as draft:
        for num_sequences in (1, 8, 64):
            times = await Rounds(num_sequences).run(target, draft, num_rounds)
            median_ms = statistics.median(times)
            report.row(
                sequences=num_sequences,
                median_ms=median_ms,
                p90_ms=statistics.quantiles(times, n=10)[-1],
                rounds_per_s=1000 * num_sequences / median_ms,
            )
            if num_sequences in LIMITS_MS:
                name = f"round of {num_sequences} sequence{'s' * (num_sequences > 1)}, as in production"
                report.check(name, median_ms, LIMITS_MS[num_sequences], "ms")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_rounds = 300 if options.quick else 3000
    conditions = {
        "transport": "gRPC on loopback",
        "engine": "none, it answers at once",
        "draft tokens": NUM_DRAFT_TOKENS,
        "rounds": num_rounds,
    }
    report = Report("What does one round cost besides the models?", conditions)
    uvloop.run(measure(num_rounds, report))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
