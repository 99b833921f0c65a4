import pytest

from orchestrator.rounds.draft_deadline import draft_deadline_s


@pytest.mark.parametrize(
    ("num_tokens", "decode_s", "ask_s", "expected"),
    [
        (4, 0.008, 0.003, 0.032),  # as plain decoding
        (1, 0.002, 0.001, 0.01),  # what an event loop may be late
        (4, None, 0.0, 0.2),  # nothing is measured yet
        (2, 0.008, 0.020, 0.060),  # drafts take long now: three times as long as they do
        (2, 0.008, 5.0, 0.128),  # but eight times plain decoding at most
    ],
)
def test_a_draft_may_take_as_long_as_plain_decoding_or_a_few_times_what_drafts_do(
    num_tokens: int, decode_s: float | None, ask_s: float, expected: float
) -> None:
    assert draft_deadline_s(num_tokens, decode_s, ask_s) == pytest.approx(expected)
