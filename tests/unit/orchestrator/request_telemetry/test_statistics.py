from types import SimpleNamespace

from orchestrator.request_telemetry.statistics import RequestStatistics
from orchestrator.requests.kind import Kind
from orchestrator.requests.request import SpeculationOptions
from orchestrator.step_rounds import NoSteps
from pilotfish.speculation.statistics import AcceptanceStatistics
from pilotfish.types import SamplingParams


def session(
    num_output_tokens=10, *, has_answered=True, accepted=(2, 0), kind=Kind.PLAIN, num_prompt_logprobs=None
) -> SimpleNamespace:
    statistics = AcceptanceStatistics()
    for num_accepted in accepted:
        statistics.add(3, num_accepted)
    request = SimpleNamespace(
        prompt_token_ids=(1, 2, 3, 4),
        sampling=SamplingParams(),
        speculation=SpeculationOptions(),
        kind=kind,
        num_prompt_logprobs=num_prompt_logprobs,
    )
    sequence = SimpleNamespace(
        request=request,
        statistics=statistics,
        num_output_tokens=num_output_tokens,
        num_plain_tokens=1,
        num_grammar_draft_tokens=2,
        num_grammar_accepted_tokens=1,
    )
    target = SimpleNamespace(has_answered=has_answered, num_cached_tokens=2, num_failovers=1)
    drafter = SimpleNamespace(num_missed_deadlines=1)
    return Hashable(sequence=sequence, target=target, drafter=drafter, steps=NoSteps())


class Hashable(SimpleNamespace):
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def test_what_still_runs_counts_and_is_not_counted_again_when_it_ends() -> None:
    statistics, running = RequestStatistics(), session()
    statistics.begin(running)
    before = statistics.totals
    assert (before.num_prompt_tokens, before.num_cached_tokens, before.num_output_tokens) == (4, 2, 10)
    assert (before.num_rounds, before.num_draft_tokens.total(), before.num_accepted_tokens.total()) == (2, 6, 2)
    assert before.num_accepted_per_position == [1, 1, 0]
    assert (before.num_grammar_draft_tokens, before.num_grammar_accepted_tokens) == (2, 1)
    statistics.end(running)
    statistics.end(running)
    assert statistics.totals == before
    running.sequence.num_output_tokens = 99
    assert statistics.totals == before


def test_what_the_scoring_of_a_prompt_has_left_in_the_cache_was_not_found_there() -> None:
    statistics = RequestStatistics()
    statistics.begin(session(num_prompt_logprobs=0))
    assert (statistics.totals.num_prompt_tokens, statistics.totals.num_cached_tokens) == (4, 0)


def test_drafts_are_counted_apart_by_kind_of_request() -> None:
    statistics = RequestStatistics()
    ended = session(kind=Kind.GRAMMAR, accepted=(3,))
    statistics.begin(ended)
    statistics.end(ended)
    for kind in (Kind.GRAMMAR, Kind.TOOLS):
        statistics.begin(session(kind=kind))
    for _ in range(2):  # looking changes nothing
        assert statistics.totals.num_draft_tokens == {Kind.GRAMMAR: 9, Kind.TOOLS: 6}
        assert statistics.totals.num_accepted_tokens == {Kind.GRAMMAR: 5, Kind.TOOLS: 2}


def test_positions_of_drafts_of_any_length_add_up() -> None:
    statistics = RequestStatistics()
    for accepted in ((3,), (1, 1)):
        one = session(accepted=accepted)
        statistics.begin(one)
        statistics.end(one)
    statistics.begin(session(accepted=()))
    assert statistics.totals.num_accepted_per_position == [3, 1, 1]
    assert statistics.totals.num_failovers == 3
