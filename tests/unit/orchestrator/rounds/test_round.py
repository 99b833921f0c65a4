"""A round that verifies a draft; a run of plain decoding, and the drafts that may end it."""

from typing import NamedTuple

import pytest

from orchestrator.control.decision import Decision
from orchestrator.control.reasons import Reason
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.peer import Peer
from orchestrator.rounds.round import Round
from orchestrator.rounds.timing import Mark, RoundTiming
from pilotfish.messages import Decode, Verdict, Verify
from pilotfish.types import LoadReport
from tests.support.memory_replicas import MemoryLink


class Decoded(NamedTuple):
    """Committed tokens."""

    token_ids: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.token_ids)

    def tokens_since(self, position: int) -> tuple[int, ...]:
        return self.token_ids[position:]


def run_of(num_tokens: int = 16) -> Round:
    """Asked for after three tokens, a second ago."""
    run = Round(3, num_tokens, credit_tokens=512)
    run.timing = RoundTiming(Mark(0.0, 3, LoadReport()))
    return run


def take(run: Round, num_tokens: int = 1, num_draft_tokens: int = 0, length: int = 4) -> None:
    verdict = Verdict(1, length - num_tokens, num_draft_tokens, num_draft_tokens, (9,) * num_tokens)
    run.take(verdict, Mark(1.0, length, LoadReport()))


def cut_in(run: Round, draft: Draft) -> bool:
    """Whether the draft, on the three tokens, is sent into the run."""
    command = run.cut_in(Peer(MemoryLink("a")), 3, draft)
    assert command is None or command.draft_token_ids == draft.token_ids
    return command is not None


def verification() -> Round:
    asked = Round(3, draft=Draft((1, 2)))
    asked.timing = RoundTiming(Mark(0.0, 3, LoadReport()))
    return asked


@pytest.mark.parametrize(("num_draft_tokens", "num_plain_tokens"), [(0, 1), (2, 0)])
def test_with_a_draft_it_ends_with_its_verdict_and_counts_what_came_without_it(
    num_draft_tokens, num_plain_tokens
) -> None:
    asked = verification()
    assert not asked.is_over(3)
    assert asked.num_coming_tokens(3) == 1
    length = 4 + num_draft_tokens
    take(asked, num_draft_tokens + 1, num_draft_tokens, length)
    assert asked.is_over(length)
    assert asked.num_coming_tokens(length) == 0
    assert asked.num_plain_tokens == num_plain_tokens


def test_of_a_drafts_verdict_what_a_grammar_drafted_is_counted_apart() -> None:
    asked = verification()
    verdict = Verdict(1, 3, 3, 3, (9,) * 4, first_grammar_token=2, num_grammar_tokens=1)
    asked.take(verdict, Mark(1.0, 6, LoadReport()))
    assert (asked.num_forced_tokens, asked.num_plain_tokens) == (1, 0)


def test_in_place_of_a_draft_that_is_refused_a_token_is_decoded() -> None:
    asked, peer = Round(3, 5, draft=Draft((1, 2)), credit_tokens=64, takes_forced=True), Peer(MemoryLink("a"))
    assert isinstance(asked.command(peer, 3, None), Verify)
    asked.drop_draft()
    assert asked.command(peer, 3, None) == Decode(peer.sequence_id, 3, 1)


def test_a_second_draft_waits_until_the_first_one_is_decided() -> None:
    run = run_of()
    assert run.takes_drafts(Decoded((1, 2, 3)))
    assert cut_in(run, Draft((7, 8, 9)))
    for decoded in ((), (7,), (7, 8)):
        text = Decoded((1, 2, 3, *decoded))
        assert run.awaits_cut_in(text)
        assert not run.takes_drafts(text)
    for decoded in ((5,), (7, 5), (7, 8, 9)):
        text = Decoded((1, 2, 3, *decoded))
        assert not run.awaits_cut_in(text)
        assert run.takes_drafts(text)


def test_what_a_grammar_drafted_ends_no_run_and_counts_for_no_drafter() -> None:
    run = run_of()
    assert cut_in(run, Draft((7, 8, 9)))
    run.take(Verdict(1, 3, 2, 2, (7, 8, 9), num_grammar_tokens=2), Mark(1.0, 4, LoadReport()))
    assert not run.is_over(6)
    assert (run.num_plain_tokens, run.num_forced_tokens) == (1, 2)
    run.take(Verdict(1, 6, 3, 3, (1, 2, 3, 4), first_grammar_token=1, num_grammar_tokens=2), Mark(2.0, 6, LoadReport()))
    assert run.is_over(10)


def test_a_draft_of_which_a_grammar_left_nothing_ends_the_run_all_the_same() -> None:
    run = run_of()
    assert cut_in(run, Draft((7, 8, 9)))
    run.take(Verdict(1, 3, 2, 2, (1, 2, 3), num_grammar_tokens=2, replaces_draft=True), Mark(1.0, 4, LoadReport()))
    assert run.is_over(6)


def test_a_draft_of_one_token_ends_nothing() -> None:
    run = run_of()
    assert not cut_in(run, Draft((7,)))
    assert not run.awaits_cut_in(Decoded((1, 2, 3)))


def test_a_draft_ends_no_run_of_which_one_token_is_to_come() -> None:
    run = run_of(3)
    assert run.takes_drafts(Decoded((1, 2, 3, 4)))
    assert not run.takes_drafts(Decoded((1, 2, 3, 4, 5)))


def test_a_run_asked_for_elsewhere_waits_for_no_draft() -> None:
    run = run_of()
    cut_in(run, Draft((7, 8)))
    run.restart()
    assert run.takes_drafts(Decoded((1, 2, 3)))


def test_what_was_asked_for_again_tells_no_time() -> None:
    run = run_of()
    take(run)
    assert run.timing.elapsed_s == 1.0
    again = run_of()
    again.restart()
    take(again)
    assert (again.timing.elapsed_s, again.timing.num_steps) == (0, 0)


def test_a_run_says_who_was_spared_only_once_a_draft_has_ended_it() -> None:
    for spared in (True, False):
        run = run_of()
        assert not run.spared_drafter
        cut_in(run, Draft((9, 9), spared_drafter=spared))
        take(run)
        assert not run.spared_drafter
        assert not run.is_over(4)
        take(run, num_tokens=2, num_draft_tokens=1, length=6)
        assert run.is_over(6)
        assert run.spared_drafter is spared


def test_a_runs_own_drafts_end_nothing() -> None:
    run = run_of()
    take(run, num_tokens=3, num_draft_tokens=2, length=6)
    assert not run.is_over(6)
    assert not run.spared_drafter


def test_tokens_of_drafts_are_not_plain_ones() -> None:
    run = run_of()
    take(run)
    take(run, num_tokens=3, num_draft_tokens=2, length=7)
    assert run.num_plain_tokens == 1


def test_a_draft_that_ends_a_run_is_no_part_of_its_time() -> None:
    run = run_of()
    cut_in(run, Draft((9, 9)))
    take(run)
    before = run.timing
    take(run, num_tokens=2, num_draft_tokens=1, length=6)
    assert run.timing == before


def test_what_follows_is_decided_once_and_near_the_end() -> None:
    run = run_of(16)  # until 19
    assert not run.is_running_out(14, 500)
    assert run.is_running_out(15, 500)
    assert not run.is_running_out(15, 4)  # the answer ends with the run
    assert not run.is_running_out(19, 500)
    run.successor = Decision(4, 1, Reason.REQUESTED)
    assert not run.is_running_out(15, 500)


def test_before_something_is_to_be_decided_tokens_may_come_unseen() -> None:
    run = run_of(16)  # until 19, decided on from 15 on
    for num_remaining, limit in ((500, 15), (16, 19)):
        num_idle = run.num_idle_tokens(3, num_remaining)
        assert 3 + num_idle == limit - 1
        assert not run.is_running_out(3 + num_idle, num_remaining - num_idle)
    assert run.num_idle_tokens(15, 500) == run.num_idle_tokens(19, 500) == 0
    assert run_of(400).num_idle_tokens(3, 400) == 32


def test_a_short_run_is_not_extended() -> None:
    assert not any(run_of(7).is_running_out(length, 500) for length in range(3, 11))
    assert run_of(7).num_idle_tokens(3, 500) == 6


def test_a_long_run_is_extended_sixteen_tokens_before_its_end() -> None:
    run = run_of(200)  # until 203
    assert not run.is_running_out(203 - 17, 500)
    assert run.is_running_out(203 - 16, 500)
    assert run.num_idle_tokens(203 - 20, 500) == 3


def test_what_was_left_is_not_awaited() -> None:
    run = run_of()
    run.end_at(8)
    assert run.is_over(8)
    assert run.num_coming_tokens(8) == 0
