"""What is asked, and when."""

import itertools

import pytest

from pilotfish.bench.load.lengths import parse_lengths
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.trace import TraceEntry
from pilotfish.bench.load.workload import (
    NUM_NONCE_TOKENS,
    ListedPrompts,
    PlannedRequest,
    SyntheticPrompts,
    Workload,
)
from pilotfish.client.answer import TokenPrompt
from pilotfish.errors import ConfigError
from pilotfish.types import ChatMessage

CORPUS = tuple(range(100, 150))


def workload(**changes: object) -> Workload:
    values: dict = {
        "prompts": SyntheticPrompts(CORPUS, parse_lengths("uniform:8-200")),
        "output_lengths": parse_lengths("uniform:1-50"),
        "seed": 3,
        "max_context_tokens": 4096,
    }
    return Workload(**values | changes)


def first(source: Workload, level: Level, salt: str = "", count: int = 40) -> list[PlannedRequest]:
    return list(itertools.islice(source.requests(level, salt), count))


def tokens(request: PlannedRequest) -> tuple[int, ...]:
    assert isinstance(request.prompt, TokenPrompt)
    return request.prompt.token_ids


def test_every_level_and_mode_gets_the_same_requests() -> None:
    closed, opened = first(workload(), Level("concurrency", 4)), first(workload(), Level("rate", 9))
    assert [(each.prompt, each.max_tokens, each.seed) for each in closed] == [
        (each.prompt, each.max_tokens, each.seed) for each in opened
    ]
    assert [each.index for each in closed] == list(range(40))


def test_another_seed_gives_other_requests_at_other_times() -> None:
    ours, theirs = first(workload(), Level("rate", 9)), first(workload(seed=4), Level("rate", 9))
    assert [each.prompt for each in ours] != [each.prompt for each in theirs]
    assert [each.arrival_s for each in ours] != [each.arrival_s for each in theirs]


def test_another_salt_gives_other_prompts_and_keeps_lengths_of_answers_and_arrivals() -> None:
    ours, theirs = first(workload(), Level("rate", 9)), first(workload(), Level("rate", 9), "auto")
    assert not {each.prompt for each in ours} & {each.prompt for each in theirs}
    assert [(each.max_tokens, each.arrival_s) for each in ours] == [
        (each.max_tokens, each.arrival_s) for each in theirs
    ]


def test_arrivals_are_due_in_order_and_the_closed_loop_has_none() -> None:
    times = [each.arrival_s for each in first(workload(), Level("rate", 9))]
    assert times == sorted(times)
    assert {each.arrival_s for each in first(workload(), Level("concurrency", 4))} == {None}


def test_no_two_synthetic_prompts_begin_alike_and_all_have_their_length() -> None:
    prompts = [tokens(each) for each in first(workload(), Level("concurrency", 1))]
    assert len({prompt[:NUM_NONCE_TOKENS] for prompt in prompts}) == len(prompts)
    assert all(8 <= len(prompt) <= 200 for prompt in prompts)
    assert max(len(prompt) for prompt in prompts) > len(CORPUS)
    assert all(set(prompt) <= set(CORPUS) for prompt in prompts)


def test_behind_the_first_tokens_the_corpus_goes_on_as_it_stands() -> None:
    for request in first(workload(), Level("concurrency", 1)):
        text = tokens(request)[NUM_NONCE_TOKENS:]
        steps = {(later - earlier) % len(CORPUS) for earlier, later in itertools.pairwise(text)}
        assert steps <= {1}


def test_a_trace_says_when_and_how_long_and_ends() -> None:
    trace = (TraceEntry(1000, 7, 3), TraceEntry(1500, 20, 9))
    requests = first(workload(trace=trace), Level("trace", 2))
    assert [(each.arrival_s, len(tokens(each)), each.max_tokens) for each in requests] == [(0.0, 7, 3), (0.25, 20, 9)]


def test_what_exceeds_the_context_is_cut() -> None:
    trace = (TraceEntry(0, 70, 30), TraceEntry(0, 7, 900))
    requests = first(workload(trace=trace, max_context_tokens=64), Level("trace", 1))
    assert [(len(tokens(each)), each.max_tokens) for each in requests] == [(34, 30), (1, 63)]


def test_given_prompts_come_in_their_order_over_and_over() -> None:
    source = workload(prompts=ListedPrompts(["a", "b"]))
    texts = [each.prompt for each in first(source, Level("concurrency", 1), count=3)]
    assert texts == [(ChatMessage("user", text),) for text in "aba"]


def test_a_trace_wants_prompts_that_can_have_any_length() -> None:
    source = workload(prompts=ListedPrompts(["a"]), trace=(TraceEntry(0, 7, 3),))
    with pytest.raises(ConfigError, match="leave --prompts out"):
        first(source, Level("trace", 1))
