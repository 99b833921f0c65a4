"""An answer's chunks and its summary, as orchestrators and clients have them, and their wire form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec

from pilotfish.rpc.conversion import logprobs_from_proto, logprobs_to_proto
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from pilotfish.speculation.statistics import SpeculationStats
from pilotfish.types import FinishReason, TokenLogprobs, TokenOrigin


class Chunk(msgspec.Struct, frozen=True):
    """Tokens committed together; `text` may lag behind them. A struct, as it is made for every token."""

    text: str
    token_ids: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token when asked for."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How the answer came about: the end of the stream."""

    request_id: str
    model_id: str
    finish_reason: FinishReason
    stopped_by: str | int | None
    """The stop string or the token id that ended the answer. A client gets empty text for neither, and from older
    orchestrators the id as text."""
    seed: int
    emulated: bool
    lossy: bool
    """Acceptance or the level was lossy: the answer need not be the target's own."""
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    queue_time_s: float = 0.0
    """Time from arrival at the orchestrator to the target's first step for it."""
    time_to_first_token_s: float
    total_time_s: float
    speculation: SpeculationStats

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed: output tokens after the first, over the time after the first."""
        decode_time_s = self.total_time_s - self.time_to_first_token_s
        return (self.num_output_tokens - 1) / decode_time_s if decode_time_s > 0 else 0.0


def chunk_to_proto(chunk: Chunk) -> pb.GenerateResponse:
    response = pb.GenerateResponse()
    proto = response.chunk
    proto.text = chunk.text
    proto.token_ids.extend(chunk.token_ids)
    proto.origins.extend(cast("tuple[types_pb2.TokenOrigin.ValueType, ...]", chunk.origins))  # the values are equal
    if chunk.logprobs:
        proto.logprobs.extend(map(logprobs_to_proto, chunk.logprobs))
    return response


def chunk_from_proto(chunk: pb.Chunk) -> Chunk:
    return Chunk(
        chunk.text,
        tuple(chunk.token_ids),
        tuple(_ORIGINS.get(origin, TokenOrigin.PLAIN) for origin in chunk.origins),
        tuple(logprobs_from_proto(logprobs) for logprobs in chunk.logprobs),
    )


_ORIGINS = {int(origin): origin for origin in TokenOrigin}
"""A newer service may know more: that ends no answer."""
_SAME = ("request_id", "model_id", "seed", "emulated", "lossy")
_USAGE = {
    "prompt_tokens": "num_prompt_tokens",
    "output_tokens": "num_output_tokens",
    "cached_prompt_tokens": "num_cached_tokens",
}
_TIMES = {
    "queue_time_ns": "queue_time_s",
    "time_to_first_token_ns": "time_to_first_token_s",
    "total_time_ns": "total_time_s",
}


def summary_to_proto(summary: Summary) -> pb.GenerateResponse:
    return pb.GenerateResponse(
        summary=pb.Summary(
            **{name: getattr(summary, name) for name in _SAME},
            finish_reason=types_pb2.FinishReason.ValueType(summary.finish_reason),
            stopped_by="" if summary.stopped_by is None else str(summary.stopped_by),
            stop_token_id=summary.stopped_by if isinstance(summary.stopped_by, int) else None,
            usage=pb.Usage(**{name: getattr(summary, own) for name, own in _USAGE.items()}),
            timings=pb.RequestTimings(**{name: round(1e9 * getattr(summary, own)) for name, own in _TIMES.items()}),
            speculation=pb.SpeculationStats(**msgspec.structs.asdict(summary.speculation)),
        )
    )


def summary_from_proto(summary: pb.Summary) -> Summary:
    return Summary(
        **{name: getattr(summary, name) for name in _SAME},
        finish_reason=FinishReason(summary.finish_reason),
        stopped_by=summary.stop_token_id if summary.HasField("stop_token_id") else summary.stopped_by,
        **{own: getattr(summary.usage, name) for name, own in _USAGE.items()},
        **{own: getattr(summary.timings, name) / 1e9 for name, own in _TIMES.items()},
        speculation=_speculation_from_proto(summary.speculation),
    )


def _speculation_from_proto(stats: pb.SpeculationStats) -> SpeculationStats:
    values = {field: getattr(stats, field) for field in SpeculationStats.__struct_fields__}
    values["acceptance_per_position"] = tuple(stats.acceptance_per_position)
    values["num_rounds_by_draft_tokens"] = dict(stats.num_rounds_by_draft_tokens)
    return SpeculationStats(**values)
