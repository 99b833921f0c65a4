"""What is asked, and when."""

import itertools

from pilotfish.bench.load.workload import NUM_NONCE_TOKENS, PlannedRequest, SyntheticPrompts, Workload, parse_lengths
from pilotfish.client.answer import TokenPrompt

CORPUS = tuple(range(100, 150))


def workload(**changes: object) -> Workload:
    values: dict = {
        "prompts": SyntheticPrompts(CORPUS, parse_lengths("uniform:8-200")),
        "output_lengths": parse_lengths("uniform:1-50"),
        "seed": 3,
        "max_context_tokens": 4096,
    }
    return Workload(**values | changes)


def first(source: Workload, salt: str = "", count: int = 40) -> list[PlannedRequest]:
    return list(itertools.islice(source.requests(salt), count))


def tokens(request: PlannedRequest) -> tuple[int, ...]:
    assert isinstance(request.prompt, TokenPrompt)
    return request.prompt.token_ids


def test_the_same_seed_gives_the_same_requests() -> None:
    requests = first(workload())
    assert requests == first(workload())
    assert [each.index for each in requests] == list(range(40))


def test_another_salt_gives_other_prompts_and_keeps_the_lengths_of_answers() -> None:
    ours, theirs = first(workload()), first(workload(), "auto")
    assert not {each.prompt for each in ours} & {each.prompt for each in theirs}
    assert [each.max_tokens for each in ours] == [each.max_tokens for each in theirs]


def test_no_two_synthetic_prompts_begin_alike_and_all_have_their_length() -> None:
    prompts = [tokens(each) for each in first(workload())]
    assert len({prompt[:NUM_NONCE_TOKENS] for prompt in prompts}) == len(prompts)
    assert all(8 <= len(prompt) <= 200 for prompt in prompts)
    assert max(len(prompt) for prompt in prompts) > len(CORPUS)
    assert all(set(prompt) <= set(CORPUS) for prompt in prompts)


def test_what_exceeds_the_context_is_cut() -> None:
    for output, expected in (("30", (34, 30)), ("900", (1, 63))):
        prompts = SyntheticPrompts(CORPUS, parse_lengths("70"))
        source = workload(prompts=prompts, output_lengths=parse_lengths(output), max_context_tokens=64)
        (request,) = first(source, count=1)
        assert (len(tokens(request)), request.max_tokens) == expected
