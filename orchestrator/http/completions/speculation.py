"""What an answer says about its speculation: Pilotfish's own addition to OpenAI's API."""

from __future__ import annotations

import msgspec

from orchestrator.answers.output import OutputChunk
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.answer import Summary
from pilotfish.speculation.statistics import SpeculationStats
from pilotfish.types import TokenOrigin

_ORIGIN_NAMES = {origin: origin.name.lower() for origin in TokenOrigin}


class TokenDetails(msgspec.Struct):
    """Some tokens of the answer, in order; asked for with `speculation.return_tokens`."""

    token_ids: list[int]
    texts: list[str]
    """Texts of the tokens, each by itself: an incomplete character shows as U+FFFD."""
    origins: list[str]
    """`plain`, `accepted` (a draft that stood), `grammar` (the same, and only the request's grammar drafted it),
    `recovered` (the target's own after a draft that fell) or `bonus` (after drafts that all stood). Every round ends
    with a token that is neither `accepted` nor `grammar`, or with the answer."""
    round_draft_tokens: list[int]
    """For each token, how many draft tokens its round had; 0: it was decoded plainly."""


class SpeculationReport(SpeculationStats, kw_only=True):
    """How one answer came about. Durations in milliseconds, from the request's arrival."""

    seed: int
    """The seed that reproduces this answer."""
    emulated: bool
    """The engine only plays the hardware; the text means nothing."""
    lossy: bool
    """Acceptance or the level was lossy: the answer need not be the target's own."""
    queue_time_ms: float
    time_to_first_token_ms: float
    total_time_ms: float


class ChoiceDetails(msgspec.Struct, omit_defaults=True):
    """The field `speculation` of a choice."""

    tokens: TokenDetails | None = None
    report: SpeculationReport | None = None
    """Present at the end of the answer."""


def token_details(chunk: OutputChunk, tokenizer: Tokenizer) -> TokenDetails:
    """Details of one chunk's tokens."""
    return TokenDetails(
        token_ids=list(chunk.token_ids),
        texts=[tokenizer.decode([token_id], skip_special=False) for token_id in chunk.token_ids],
        origins=[_ORIGIN_NAMES[origin] for origin in chunk.origins],
        round_draft_tokens=list(chunk.round_draft_tokens),
    )


def speculation_report(report: Summary) -> SpeculationReport:
    """The report of a finished answer."""
    return SpeculationReport(
        **msgspec.structs.asdict(report.speculation),
        seed=report.seed,
        emulated=report.emulated,
        lossy=report.lossy,
        queue_time_ms=report.queue_time_s * 1e3,
        time_to_first_token_ms=report.time_to_first_token_s * 1e3,
        total_time_ms=report.total_time_s * 1e3,
    )
