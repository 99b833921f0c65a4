"""Pieces of answers and their reports, as the session makes them."""

from types import SimpleNamespace
from typing import Any

from orchestrator.answers.output import OutputChunk
from pilotfish.speculation.statistics import SpeculationStats
from pilotfish.types import FinishReason, TokenOrigin


def output_chunk(text: str = "", finish_reason: FinishReason | None = None, **values: Any) -> OutputChunk:
    """A plain token for each letter. values: of any field."""
    token_ids = values.pop("token_ids", tuple(map(ord, text)))
    fields = {
        "origins": (TokenOrigin.PLAIN,) * len(token_ids),
        "logprobs": (),
        "round_draft_tokens": (0,) * len(token_ids),
        "num_accepted_tokens": 0,
        "stopped_by": None,
        **values,
    }
    return OutputChunk(text=text, token_ids=token_ids, finish_reason=finish_reason, **fields)


def request_report(finish_reason: FinishReason = FinishReason.STOP) -> Any:
    """What is told at the end of an answer, as far as the HTTP API reads it."""
    return SimpleNamespace(
        finish_reason=finish_reason,
        stopped_by=None,
        num_prompt_tokens=3,
        num_output_tokens=4,
        num_cached_tokens=0,
        speculation=SpeculationStats(num_plain_tokens=4, num_rounds_by_draft_tokens={0: 1}),
        seed=1,
        emulated=False,
        lossy=False,
        queue_time_s=0,
        time_to_first_token_s=0,
        total_time_s=0,
    )
