"""What a client must never see the result of."""

import pytest

from orchestrator.answers.sequence import Sequence, check_verdict
from pilotfish.errors import InternalError
from pilotfish.messages import Verdict
from pilotfish.types import FinishReason, Limits, ModelInfo, SamplingParams, TokenLogprobs

MODEL = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=50, max_context_tokens=100)
LIMITS = Limits(max_draft_tokens=4, max_sequences=4)
ONE = TokenLogprobs(-1.0, (1, 2), (-1.0, -2.0))


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of((1, 2), SamplingParams(max_tokens=5))


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(1, 2, 0, 0, (49,)),
        Verdict(1, 2, 0, 0, (7, 8, 9)),
        Verdict(1, 2, 0, 0, (7, 8, 9, 10, 11), finish_reason=FinishReason.LENGTH),
        Verdict(1, 2, 4, 0, (7,)),
        Verdict(1, 2, 4, 2, (7, 8), finish_reason=FinishReason.STOP),
        Verdict(1, 2, 4, 3, (7, 8, 9, 10)),
        Verdict(1, 2, 4, 2, (7, 8, 9), draft_depth=2, ended_in_leaf=True),
        Verdict(1, 2, 0, 0, (7, 8), logprobs=(ONE, ONE)),
    ],
)
def test_what_targets_say_passes(sequence: Sequence, verdict: Verdict) -> None:
    check_verdict(verdict, sequence, MODEL, LIMITS)


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        (Verdict(1, 3, 0, 0, (7,)), "answered on 3 tokens; 2 are committed"),
        (Verdict(1, 2, 0, 0, ()), "answered on 2 tokens"),
        (Verdict(1, 2, 0, 0, (7, 50)), "token 50; its vocabulary has 50"),
        (Verdict(1, 2, 0, 0, (7, 8, 9, 10, 11)), "went past max_tokens"),
        (Verdict(1, 2, 0, 0, (7,) * 6, finish_reason=FinishReason.LENGTH), "went past max_tokens"),
        (Verdict(1, 2, 2**32 - 1, 0, (7,)), "0 of 4294967295 drafts"),
        (Verdict(1, 2, 5, 1, (7, 8)), "1 of 5 drafts"),
        (Verdict(1, 2, 0, 2**32 - 1, (7,)), "4294967295 of 0 drafts"),
        (Verdict(1, 2, 2, 3, (7, 8, 9)), "3 of 2 drafts"),
        (Verdict(1, 2, 4, 1, (7, 8, 9)), "1 of 4 drafts are accepted, and sends 3 tokens"),
        (Verdict(1, 2, 4, 3, (7, 8)), "3 of 4 drafts are accepted, and sends 2 tokens"),
        (Verdict(1, 2, 4, 1, (7, 8), draft_depth=2**32 - 1), "1 of 4 drafts"),
        (Verdict(1, 2, 4, 3, (7, 8, 9), draft_depth=2), "3 of 4 drafts"),
        (Verdict(1, 2, 0, 0, (7, 8), logprobs=(ONE,)), "log-probabilities"),
        (Verdict(1, 2, 0, 0, (7,), logprobs=(TokenLogprobs(-1.0, (1,), ()),)), "log-probabilities"),
        (Verdict(1, 2, 0, 0, (7,), logprobs=(TokenLogprobs(-1.0, (50,), (-1.0,)),)), "log-probabilities"),
    ],
)
def test_what_no_working_target_says_is_refused(sequence: Sequence, verdict: Verdict, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        check_verdict(verdict, sequence, MODEL, LIMITS)
