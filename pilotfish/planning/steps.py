"""What whole steps of reasoning gain (SpecReason, 2504.07891), for one sequence alone.

The drafter writes a step of S tokens, a piece at a time; the target judges it in one step of S rows and those of the
question, and writes what falls itself, in rounds over tokens. With the share `a` of steps that are kept, S tokens take

    S * draft step + pieces * round trip + judgement + (1 - a) * S * token of the target's own
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.result import StepRow
from pilotfish.speculation.reasoning_steps import CHUNK_TOKENS

STEP_ACCEPTANCES = (0.3, 0.6, 0.9)
STEP_TOKENS = 128
"""Tokens of a step: a request's default maximum."""
_QUESTION_ROWS = 32
"""Rows of a judgement apart from the step's: the question, and the start of the step's first KV block."""


def step_rows(model: DecodingModel, num_draft_tokens: int) -> Sequence[StepRow]:
    """A row for each of STEP_ACCEPTANCES. num_draft_tokens: of a round in which the target writes itself."""
    num_pieces = -(-STEP_TOKENS // CHUNK_TOKENS)
    written_s = STEP_TOKENS * model.draft_step_s(1) + num_pieces * model.round_trip_s
    judged_s = model.step_s(1, STEP_TOKENS + _QUESTION_ROWS) + model.round_trip_s
    own_s = STEP_TOKENS * model.token_s(1, num_draft_tokens)
    times_s = {share: (written_s + judged_s + (1 - share) * own_s) / STEP_TOKENS for share in STEP_ACCEPTANCES}
    plain_s = model.token_s(1, 0)
    return [
        StepRow(step_acceptance=share, token_ms=token_s * 1e3, speed_up=plain_s / token_s)
        for share, token_s in times_s.items()
    ]
