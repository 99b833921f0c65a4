"""One request's sequence on the target pool: which replica it is on, and when it gives up."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.rounds.commands import (
    Acquire,
    Acquired,
    Close,
    Lost,
    NotAcquired,
    Open,
    Report,
    Send,
)
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.round import Round
from pilotfish.errors import InvalidRequestError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import Decode, Opened, Predrafted, SequenceError, Verdict
from pilotfish.types import Limits, LoadReport, SamplingParams, SequenceErrorCode, Timings
from tests.support.toy_model import VOCAB_SIZE, continuation
from tests.unit.orchestrator.rounds.conftest import PROMPT, Asked

NO_PLACE = SequenceErrorCode.RESOURCE_EXHAUSTED


def refused(asked: Asked, now_s: float = 0.0, code=NO_PLACE) -> None:
    asked.hear(SequenceError(1, code, "all are in use"), now_s)


def test_a_refused_place_is_told_to_the_pool_and_no_attempt(asked, links) -> None:
    for attempt in range(10):
        refused(asked)
        assert [command.service for command in asked.out if isinstance(command, Report)] == ["full"]
        assert len(asked.said(Acquire)) == 1
        asked.open_on(links[attempt % 2])
    assert asked.target.num_failovers == 0


def test_who_is_refused_for_too_long_gives_up_unless_the_answer_has_begun(asked, links) -> None:
    refused(asked, 1.0)
    asked.open_on(links[0], 1.0)
    with pytest.raises(ResourceExhaustedError, match="all are in use"):
        refused(asked, 6.5)


def test_an_answer_that_has_begun_waits_for_a_place_as_long_as_it_takes(asked, links) -> None:
    asked.hear(Opened(1, 0))
    asked.hear(asked.next_token())
    refused(asked, code=SequenceErrorCode.UNAVAILABLE)
    for now_s in (1.0, 100.0, 1000.0):
        asked.open_on(links[1], now_s)
        refused(asked, now_s)
        (acquire,) = asked.said(Acquire)
        assert acquire.is_continued


def test_a_sequence_that_no_replica_can_hold_is_refused_at_once(sequence_of, links) -> None:
    asked = Asked(sequence_of(tuple(range(16))), links[0])
    links[0].load = LoadReport(num_kv_blocks_total=1)
    asked.target.ask(Round(16, 1, credit_tokens=64), 0.0)
    asked.said(Acquire)
    asked.open_on(links[0])
    with pytest.raises(ResourceExhaustedError, match="all are in use"):
        refused(asked)


def test_the_fourth_replica_that_fails_a_verdict_is_the_last(asked, links) -> None:
    for _ in range(3):
        refused(asked, code=SequenceErrorCode.INTERNAL)
        (acquire,) = asked.said(Acquire)
        assert acquire.avoid
        asked.open_on(links[1])
    with pytest.raises(Exception, match="all are in use"):
        refused(asked, code=SequenceErrorCode.INTERNAL)


def test_a_failed_replica_is_asked_for_what_is_missing_elsewhere(asked, links) -> None:
    asked.hear(Opened(1, 0))
    for _ in range(4):
        asked.hear(asked.next_token())
    refused(asked, code=SequenceErrorCode.INTERNAL)
    asked.target.hear(Acquired(links[1]), 9.0)
    (opening,) = [command for command in asked.out if isinstance(command, Open)]
    assert opening.message.output_token_ids == asked.sequence.output_token_ids
    (send,) = asked.said(Send)
    assert isinstance(send.message, Decode)
    assert (send.message.base_length, send.message.num_tokens) == (7, 6)
    assert asked.target.num_failovers == 1
    asked.hear(asked.next_token(), 10.0)
    assert asked.target.round.timing.elapsed_s == 0  # asked for twice, it says nothing of a step


@pytest.mark.parametrize("is_told", [True, False])
def test_a_replica_that_is_lost_between_two_rounds_counts(asked, links, is_told: bool) -> None:
    for _ in range(10):
        asked.hear(asked.next_token())
    if is_told:
        asked.target.hear(Lost(asked.target.peer, UnavailableError("gone")), 1.0)
    else:
        links[0].is_connected = False
    asked.target.ask(Round(13, 10, credit_tokens=64), 1.0)
    assert len(asked.said(Acquire)) == 1
    assert asked.target.num_failovers == 1


def test_an_extended_run_leaves_no_more_to_come_than_the_reader_may(asked) -> None:
    run = Round(3, 8, credit_tokens=16)
    asked.target.ask(run, 0.0)
    num_coming = []
    for _ in range(60):
        asked.hear(asked.next_token())
        if run.is_running_out(asked.sequence.length, asked.sequence.num_remaining_tokens):
            asked.target.extend(500)
        num_coming.append(run.num_coming_tokens(asked.sequence.length))
    assert max(num_coming) == 16
    assert min(num_coming) > 0


def test_a_draining_replica_is_left_as_soon_as_there_is_another(sequence_of, links) -> None:
    asked = Asked(sequence_of(), links[0])
    asked.target.ask(Round(3, 8, credit_tokens=16), 0.0)
    asked.open_on(links[0])
    links[0].is_draining = True
    assert asked.target.is_welcome
    asked.pool.links = links
    assert not asked.target.is_welcome
    asked.target.ask(Round(3, 8, credit_tokens=16), 0.0)
    assert len(asked.said(Acquire)) == 1
    assert asked.target.peer is None


def test_a_refused_draft_is_dropped_on_the_same_replica(asked, links) -> None:
    asked.hear(Opened(1, 0))
    asked.target.ask(Round(3, draft=Draft((1, 2))), 0.0)
    asked.said(Send)
    asked.hear(SequenceError(1, SequenceErrorCode.INVALID, "no drafts, please", 3))
    (send,) = asked.said(Send)
    assert isinstance(send.message, Decode)
    assert send.message.num_tokens == 1
    assert send.peer.replica is links[0]


def test_the_wait_for_a_place_and_for_the_first_step_is_queue_time(sequence_of, links) -> None:
    asked = Asked(sequence_of(), links[0])
    asked.target.ask(Round(3, 8, credit_tokens=16), 1.0)
    asked.open_on(links[0], 3.0)
    for _ in range(2):
        verdict = msgspec.structs.replace(asked.next_token(), timings=Timings(queue_time_ns=5))
        asked.hear(verdict, 4.0)
    assert asked.target.queue_time_ns == 2 * 10**9 + 5
    refused(asked, 5.0, SequenceErrorCode.INTERNAL)
    asked.open_on(links[1], 9.0)
    assert asked.target.queue_time_ns == 2 * 10**9 + 5  # the answer has begun


def test_without_a_replica_in_time_the_request_ends(sequence_of, links) -> None:
    asked = Asked(sequence_of(), links[0])
    asked.target.ask(Round(3, 8, credit_tokens=16), 0.0)
    with pytest.raises(UnavailableError, match="nobody"):
        asked.target.hear(NotAcquired(UnavailableError("nobody")), 60.0)


def test_a_replica_that_is_lost_before_it_is_opened_is_no_end(sequence_of, links) -> None:
    asked = Asked(sequence_of(), *links)
    asked.target.ask(Round(3, 8, credit_tokens=16), 0.0)
    asked.said(Acquire)
    links[0].is_connected = False
    asked.target.hear(Acquired(links[0]), 1.0)
    assert len(asked.said(Acquire)) == 1
    asked.open_on(links[1], 2.0)


def test_what_a_caller_can_mend_is_told_with_its_parameter(asked) -> None:
    with pytest.raises(InvalidRequestError, match="too hot") as error:
        asked.hear(SequenceError(1, SequenceErrorCode.INVALID, "too hot", param="temperature"))
    assert error.value.param == "temperature"


def test_a_replica_gets_no_more_drafts_than_it_takes(asked, links) -> None:
    asked.hear(Opened(1, 0))
    assert asked.target.peer is not None
    asked.target.peer.limits = Limits(max_draft_tokens=2, max_sequences=1)
    asked.target.ask(Round(3, draft=Draft((1, 2, 3), parents=(-1, 0, 1))), 0.0)
    (send,) = asked.said(Send)
    assert (send.message.draft_token_ids, send.message.parents) == ((1, 2), (-1, 0))


def test_an_extended_run_is_measured_anew(asked) -> None:
    run = Round(3, 8, credit_tokens=64)
    asked.target.ask(run, 0.0)
    for second in range(6):
        asked.hear(asked.next_token(), 10.0 * second)
    asked.target.extend(8)
    assert (run.num_plain_tokens, run.base_length, run.timing.elapsed_s) == (0, 9, 0.0)
    for second in (1, 2):
        asked.hear(asked.next_token(), 50.0 + second)
    assert (run.timing.elapsed_s, run.timing.plain_token_s, run.num_plain_tokens) == (2.0, 1.0, 2)


def test_a_lost_replica_is_not_told_to_close(asked, links) -> None:
    peer = asked.target.peer
    assert peer is not None
    asked.target.hear(Lost(peer, UnavailableError("lost")), 1.0)
    assert asked.target.replica is None
    (acquire,) = asked.said(Acquire)
    assert acquire.token_ids == PROMPT
    assert not acquire.is_continued


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("drafts", [(), (5, 6)])
def test_a_replica_that_fails_between_two_rounds_is_left_and_the_round_not_repeated(asked, drafts, is_lost) -> None:
    asked.hear(Opened(1, 0))
    asked.target.ask(Round(3, draft=Draft(drafts)), 0.0)
    asked.hear(asked.next_token())
    peer = asked.target.peer
    assert peer is not None
    asked.said(Send)
    if is_lost:
        asked.target.hear(Lost(peer, UnavailableError("lost")), 1.0)
    else:
        refused(asked, code=SequenceErrorCode.INTERNAL)
    assert asked.target.peer is None
    (close,) = asked.said(Close)
    assert bool(close.cached_token_ids) is not is_lost
    asked.target.ask(Round(4, 8, credit_tokens=8), 2.0)
    assert len(asked.said(Acquire)) == 1


def test_a_draft_that_cannot_be_sent_is_dropped_and_the_replica_left(asked) -> None:
    asked.target.ask(Round(3, draft=Draft((1, 2))), 0.0)
    peer = asked.target.peer
    assert peer is not None
    asked.said(Send)
    asked.target.hear(Lost(peer, InvalidRequestError("too large a frame")), 1.0)
    assert [type(command) for command in asked.out] == [Close, Acquire]
    assert not asked.target.round.verifies_draft


def test_the_replica_that_the_drafter_was_chosen_for_is_preferred(sequence_of, links) -> None:
    asked = Asked(sequence_of(PROMPT, SamplingParams(temperature=0, max_tokens=9)), *links, preferred="b")
    asked.target.ask(Round(3, 1, credit_tokens=64), 0.0)
    (acquire,) = asked.said(Acquire)
    assert acquire.preferred == "b"


def test_a_sequence_that_lost_its_place_on_a_replica_goes_on_elsewhere(asked, links) -> None:
    asked.hear(Opened(1, 0))
    refused(asked)
    assert not asked.said(Report)
    assert asked.target.num_failovers == 1


def test_cached_tokens_are_those_of_the_first_opening(asked, links) -> None:
    asked.hear(Opened(1, 2))
    asked.hear(asked.next_token())
    refused(asked, code=SequenceErrorCode.INTERNAL)
    asked.open_on(links[1])
    asked.hear(Opened(1, 3))
    assert asked.target.num_cached_tokens == 2


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_ended_sequence_leaves_a_prefix_where_the_replica_still_serves(asked, links, is_lost) -> None:
    asked.hear(Opened(1, 0))
    asked.hear(asked.next_token())
    links[0].is_connected = not is_lost
    asked.target.close()
    asked.target.close()
    (close,) = asked.said(Close)
    assert close.cached_token_ids == (() if is_lost else asked.sequence.tokens_since(0))


@pytest.mark.parametrize("token_id", [4, VOCAB_SIZE])
def test_only_drafts_that_the_replica_may_verify_are_handed_on(asked, token_id) -> None:
    asked.hear(Opened(1, 0))
    asked.target.ask(Round(3, draft=Draft((1, 2))), 0.0)
    asked.said(Send)
    asked.target.hand_on(Predrafted(9, 3, (1, 2), (2,), (3,), (token_id, 5)))
    handed_on = [(send.message.sequence_id, send.is_optional) for send in asked.said(Send)]
    assert handed_on == ([(1, True)] if token_id < VOCAB_SIZE else [])


@pytest.mark.parametrize("is_healthy", [True, False])
def test_only_a_healthy_replica_that_failed_is_avoided(asked, links, is_healthy) -> None:
    """One that is not is chosen by nobody, and may be well when it is back."""
    links[0].is_circuit_open = not is_healthy
    refused(asked, code=SequenceErrorCode.INTERNAL)
    (acquire,) = asked.said(Acquire)
    assert acquire.avoid == ({"a"} if is_healthy else set())


def test_what_a_grammar_drafted_makes_no_token_faster(asked) -> None:
    """Three steps of ten milliseconds, the last of which accepts four forced tokens."""
    for now_s, num_forced in ((0.0, 0), (0.01, 0), (0.02, 4)):
        length = asked.sequence.length
        token_ids = continuation(asked.sequence.tokens_since(0), num_forced + 1)
        asked.hear(Verdict(1, length, num_forced, num_forced, token_ids, num_grammar_tokens=num_forced), now_s)
    run = asked.target.round
    assert run.timing.plain_token_s == pytest.approx(0.01)
    assert (run.num_forced_tokens, run.num_plain_tokens) == (4, 3)
