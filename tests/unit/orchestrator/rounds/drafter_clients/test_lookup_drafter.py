from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Woken
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.drafter_clients.lookup_budget import LookupBudget
from orchestrator.rounds.drafter_clients.lookup_drafter import LookupDrafter
from pilotfish.config import DraftConfig
from pilotfish.drafters.ngram.draft import NgramIndex
from pilotfish.messages import Verdict
from pilotfish.speculation.lookup.index import LookupIndex, lookup_of
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution


def drafter_of(
    sequence: Sequence, index: LookupIndex | None = None, budget: LookupBudget | None = None
) -> LookupDrafter:
    return LookupDrafter(
        SequenceLookup(NgramIndex(2, 3) if index is None else index, len(sequence.request.prompt_token_ids)),
        budget or LookupBudget(10**6),
        [],
    )


def proposed(drafter: LookupDrafter, sequence: Sequence, num_tokens: int) -> Draft:
    """What it drafts once it has read all."""
    draft = drafter.ask(sequence, num_tokens, 0.0)
    while draft is None:
        draft = drafter.hear(Woken(0.0, "reading"), sequence, 0.0)
    return draft


def test_committed_output_is_looked_up_too(sequence_of) -> None:
    sequence = sequence_of([1, 2, 3])
    drafter = drafter_of(sequence)
    assert proposed(drafter, sequence, 2).token_ids == ()
    sequence.commit(Verdict(1, 3, 0, 0, (1,)))
    sequence.commit(Verdict(1, 4, 0, 0, (2,)))
    assert proposed(drafter, sequence, 2).token_ids == (3, 1)


def test_in_rejection_mode_all_probability_is_on_the_looked_up_token(sequence_of) -> None:
    sampling = SamplingParams(temperature=1, acceptance=AcceptanceMode.REJECTION)
    sequence = sequence_of([1, 2, 3, 1, 2], sampling)
    block = proposed(drafter_of(sequence), sequence, 1)
    assert block.probs == (SparseDistribution((3,), (1.0,)),)


def test_answers_serve_later_requests_unless_that_is_turned_off(sequence_of) -> None:
    for num_shared_tokens, expected in ((256, (13, 14)), (0, ())):
        make_index = lookup_of("suffix")(DraftConfig(suffix_shared_tokens=num_shared_tokens))
        first = sequence_of([1, 2, 3])
        drafter = drafter_of(first, make_index(""))
        for token_id in range(10, 20):
            first.commit(Verdict(1, first.length, 0, 0, (token_id,)))
        proposed(drafter, first, 1)
        drafter.close()
        second = sequence_of([5, 11, 12])
        assert proposed(drafter_of(second, make_index("")), second, 2).token_ids == expected


def test_the_prompt_is_read_while_the_target_reads_it(sequence_of) -> None:
    sequence = sequence_of([1, 2, 3, *range(10, 3000), 1, 2])
    index = NgramIndex(2, 3)
    drafter = drafter_of(sequence, index)
    drafter.prepare(sequence, 0.0)
    while len(index) < sequence.length:
        before = len(index)
        drafter.hear(Woken(0.0, "reading"), sequence, 0.0)
        assert len(index) > before
    assert proposed(drafter, sequence, 2).token_ids == (3, 10)
    drafter.close()


def test_proposing_and_looking_while_the_prompt_is_read_mix_nothing_up(sequence_of) -> None:
    prompt = [1, 2, 3, *range(10, 1000), 1, 2]
    sequence = sequence_of(prompt)
    index = NgramIndex(2, 3)
    drafter = drafter_of(sequence, index)
    drafter.prepare(sequence, 0.0)
    assert drafter.glance(sequence, 2).token_ids == ()  # far behind: no time for that
    assert proposed(drafter, sequence, 2).token_ids == (3, 10)
    assert list(index.token_ids) == prompt
    drafter.close()


def test_a_request_that_ends_early_stops_the_reading(sequence_of) -> None:
    sequence = sequence_of(list(range(3000)))
    index = NgramIndex(2, 3)
    drafter = drafter_of(sequence, index)
    drafter.prepare(sequence, 0.0)
    drafter.close()
    num_read = len(index)
    drafter.hear(Woken(0.0, "reading"), sequence, 0.0)
    assert 0 < len(index) == num_read < 3000


def test_no_more_is_indexed_than_all_requests_may(sequence_of) -> None:
    budget = LookupBudget(1000)
    long, short = sequence_of([1, 2, 3] * 300), sequence_of([1, 2, 3] * 30)
    first, second = drafter_of(long, budget=budget), drafter_of(long, budget=budget)
    assert proposed(first, long, 2).token_ids == (1, 2)
    refused = proposed(second, long, 2)
    assert refused.token_ids == ()
    assert "orchestrator.speculation.lookup_tokens" in refused.problem
    assert second.unavailable_reason == refused.problem
    assert second.glance(long, 2).token_ids == ()
    assert (budget.num_tokens, budget.num_refused) == (900, 1)
    third = drafter_of(short, budget=budget)
    assert proposed(third, short, 2).token_ids == (1, 2)
    for drafter in (first, second, third, first):
        drafter.close()
    assert (budget.num_tokens, budget.num_refused) == (0, 1)


def test_an_answer_that_outgrows_what_may_be_indexed_goes_on_without_a_lookup(sequence_of) -> None:
    budget, sequence = LookupBudget(10), sequence_of([1, 2, 3, 1, 2, 3])
    drafter = drafter_of(sequence, budget=budget)
    assert proposed(drafter, sequence, 1).token_ids == (1,)
    sequence.commit(Verdict(1, 6, 0, 0, (1, 2, 3, 1)))
    assert drafter.glance(sequence, 1).token_ids == (2,)
    assert (budget.num_tokens, drafter.unavailable_reason) == (10, "")
    sequence.commit(Verdict(1, 10, 0, 0, (2,)))
    assert drafter.glance(sequence, 1).token_ids == ()
    assert drafter.unavailable_reason
    assert budget.num_tokens == 0
    drafter.close()
    assert budget.num_tokens == 0


def test_a_request_that_ends_while_its_prompt_is_read_gives_back_what_it_took(sequence_of) -> None:
    budget, sequence = LookupBudget(10_000), sequence_of(list(range(3000)))
    drafter = drafter_of(sequence, budget=budget)
    drafter.prepare(sequence, 0.0)
    assert budget.num_tokens == 3000
    drafter.close()
    assert budget.num_tokens == 0
