"""Tokens wait for those after them as long as their run allows, and nothing else does."""

from __future__ import annotations

from pilotfish.engine.verdict_holding import VerdictHolding
from pilotfish.messages import CloseSequence, Decode, Event, Opened, SequenceError, Verdict, Verify
from pilotfish.types import FeatureFormat, Features, FinishReason, SequenceErrorCode, Timings, TokenLogprobs

MS = 1_000_000
STEP_NS = 10 * MS
PROMPT = 4


def token(index: int, sequence_id: int = 1, **changes: object) -> Verdict:
    """The verdict on the index-th token of a run that begins after PROMPT tokens."""
    values: dict[str, object] = {"timings": Timings(compute_time_ns=7), **changes}
    return Verdict(sequence_id, PROMPT + index, 0, 0, (100 + index,), **values)  # type: ignore[arg-type]


class Steps:
    """Steps of STEP_NS, one after another."""

    def __init__(self, *decodes: Decode) -> None:
        self.holding = VerdictHolding()
        self.holding.took(decodes)
        self.now_ns = 0

    def step(self, *events: Event, next_step_ns: int = STEP_NS) -> list[Event]:
        self.now_ns += STEP_NS
        return self.holding.gave(events, self.now_ns, next_step_ns)

    def tokens(self, *events: Event, next_step_ns: int = STEP_NS) -> list[tuple[int, ...]]:
        sent = self.step(*events, next_step_ns=next_step_ns)
        return [event.token_ids for event in sent if isinstance(event, Verdict)]


def decode(max_delay_ms: int, num_tokens: int = 100, sequence_id: int = 1, base: int = PROMPT) -> Decode:
    return Decode(sequence_id, base, num_tokens, max_delay_ms=max_delay_ms)


def test_without_a_delay_each_token_leaves_at_once() -> None:
    steps = Steps(decode(0))
    assert [steps.tokens(token(index)) for index in range(3)] == [[(100,)], [(101,)], [(102,)]]


def test_the_first_token_leaves_at_once_and_no_other_waits_longer_than_allowed() -> None:
    steps = Steps(decode(20))
    sent = [steps.tokens(token(index)) for index in range(7)]
    assert sent == [[(100,)], [], [], [(101, 102, 103)], [], [], [(104, 105, 106)]]


def test_a_step_that_takes_longer_than_the_delay_holds_nothing() -> None:
    steps = Steps(decode(9))
    assert [steps.tokens(token(index)) for index in range(3)] == [[(100,)], [(101,)], [(102,)]]


def test_what_is_held_leaves_before_a_step_that_would_outlast_the_delay() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    assert steps.tokens(token(1), next_step_ns=30 * MS) == [(101,)]


def test_a_step_that_took_longer_than_expected_ends_the_wait() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    assert steps.step(token(1)) == []
    steps.now_ns += 50 * MS
    assert steps.tokens() == [(101,)]


def test_the_last_token_of_a_run_brings_what_waits() -> None:
    steps = Steps(decode(20, num_tokens=3))
    assert [steps.tokens(token(index)) for index in range(3)] == [[(100,)], [], [(101, 102)]]


def test_that_a_run_comes_to_its_last_quarter_is_told_in_time_to_extend_it() -> None:
    steps = Steps(decode(1000, num_tokens=8))
    sent = [steps.tokens(token(index)) for index in range(8)]
    assert sent == [[(100,)], [], [], [], [], [(101, 102, 103, 104, 105)], [], [(106, 107)]]


def test_a_run_is_told_of_thrice_where_nothing_else_sends_its_tokens_off() -> None:
    steps = Steps(decode(1000, num_tokens=64))
    assert [index for index in range(64) if steps.step(token(index))] == [0, 47, 63]


def test_an_extended_run_tells_of_its_own_last_quarter() -> None:
    steps = Steps(decode(1000, num_tokens=32))
    sent = [index for index in range(24) if steps.step(token(index))]
    steps.holding.took([decode(1000, num_tokens=40, base=PROMPT + 24)])
    sent += [index for index in range(24, 64) if steps.step(token(index))]
    assert sent == [0, 23, 53, 63]


def test_an_extended_run_goes_on_waiting() -> None:
    steps = Steps(decode(20, num_tokens=3))
    steps.step(token(0))
    steps.holding.took([decode(20, num_tokens=8, base=PROMPT + 1)])
    assert [steps.tokens(token(index)) for index in (1, 2, 3)] == [[], [], [(101, 102, 103)]]


def test_the_end_of_the_answer_brings_what_waits() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    steps.step(token(1))
    (verdict,) = steps.step(token(2, finish_reason=FinishReason.STOP))
    assert isinstance(verdict, Verdict)
    assert (verdict.token_ids, verdict.finish_reason) == ((101, 102), FinishReason.STOP)
    assert verdict.timings.compute_time_ns == 14


def test_an_error_follows_what_waits() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    steps.step(token(1))
    error = SequenceError(1, SequenceErrorCode.INTERNAL, "broken")
    assert steps.step(error) == [token(1), error]


def test_verdicts_on_drafts_and_features_leave_at_once() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    drafted = Verdict(1, PROMPT + 1, 2, 1, (101, 102))
    assert steps.step(drafted) == [drafted]
    with_features = token(3, features=Features(0, 1, FeatureFormat.BF16, b"ab"))
    assert steps.step(with_features) == [with_features]


def test_what_waits_travels_with_the_next_message() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    steps.step(token(1))
    assert steps.step(token(2), Opened(2, 0)) == [
        Verdict(1, PROMPT + 1, 0, 0, (101, 102), timings=Timings(compute_time_ns=14)),
        Opened(2, 0),
    ]


def test_sequences_wait_together_and_the_least_patient_decides() -> None:
    steps = Steps(decode(100), decode(20, sequence_id=2))
    steps.step(token(0), token(0, 2))
    assert steps.tokens(token(1), token(1, 2)) == []
    assert steps.tokens(token(2), token(2, 2)) == []
    assert steps.tokens(token(3), token(3, 2)) == [(101, 102, 103), (101, 102, 103)]


def test_a_command_lets_go_of_what_waits_before_the_step_that_it_changes() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    steps.step(token(1))
    assert steps.holding.took([]) == []
    assert steps.holding.took([decode(20, sequence_id=2)]) == [token(1)]


def test_what_is_decoded_for_a_verification_does_not_wait() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    steps.holding.took([Verify(1, PROMPT + 1, ())])
    assert steps.tokens(token(1)) == [(101,)]


def test_a_run_that_may_wait_no_more_does_not() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    steps.holding.took([decode(0, base=PROMPT + 1)])
    assert steps.tokens(token(1)) == [(101,)]


def test_log_probabilities_travel_token_by_token() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    each = [TokenLogprobs(-0.1 * index) for index in range(3)]
    steps.step(token(1, logprobs=(each[1],)))
    (verdict,) = steps.step(token(2, logprobs=(each[2],)), Opened(2, 0))[:1]
    assert isinstance(verdict, Verdict)
    assert verdict.logprobs == (each[1], each[2])


def test_a_closed_sequence_is_forgotten() -> None:
    steps = Steps(decode(20))
    steps.step(token(0))
    steps.holding.took([CloseSequence(1)])
    assert steps.tokens(token(1)) == [(101,)]
