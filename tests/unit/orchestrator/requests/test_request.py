import dataclasses
from dataclasses import replace

import pytest

from orchestrator.requests.model_limits import ServedModel
from orchestrator.requests.request import (
    GenerationOptions,
    SpeculationOptions,
    bind_request,
    check_request_bytes,
)
from pilotfish.config import SpeculationConfig
from pilotfish.errors import InvalidRequestError, PromptTooLongError
from pilotfish.types import AcceptanceMode, Grammar, GrammarKind, SamplingParams

MODEL = ServedModel(
    vocab_size=100,
    max_context_tokens=16,
    max_draft_tokens=8,
    default_draft_tokens=5,
    measured_draft_tokens=5,
    eos_token_ids=frozenset({2, 0}),
)


def options(**values: object) -> GenerationOptions:
    sampling = values.pop("sampling", SamplingParams())
    return GenerationOptions(sampling=sampling, **values)  # type: ignore[arg-type]


def test_end_tokens_of_model_and_request_are_joined() -> None:
    request = bind_request(options(sampling=SamplingParams(stop_token_ids=(7, 2))), [1], MODEL)
    assert request.sampling.stop_token_ids == (0, 2, 7)


def test_ignore_eos_keeps_the_requests_own_stop_tokens() -> None:
    request = bind_request(options(sampling=SamplingParams(stop_token_ids=(7,)), ignore_eos=True), [1], MODEL)
    assert request.sampling.stop_token_ids == (7,)


@pytest.mark.parametrize("num_tokens", [16, 17, 1000])
def test_a_prompt_that_fills_the_context_is_refused(num_tokens: int) -> None:
    with pytest.raises(PromptTooLongError, match=f"{num_tokens} tokens and the context 16"):
        bind_request(options(), [1] * num_tokens, MODEL)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (options(sampling=SamplingParams(logit_bias=((100, 1.0),))), "logit_bias holds token id 100"),
        (options(sampling=SamplingParams(stop_token_ids=(3, 200))), "stop_token_ids holds token id 200"),
        (options(sampling=SamplingParams(allowed_token_ids=(3, 200))), "allowed_token_ids holds token id 200"),
        (options(sampling=SamplingParams(logit_bias=((3, 1.0), (3, 1.0)))), "logit_bias holds a token twice"),
        (options(speculation=SpeculationOptions(num_speculative_tokens=9)), "is 9; the target takes at most 8"),
    ],
)
def test_values_beyond_the_model_are_refused(given: GenerationOptions, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        bind_request(given, [1], MODEL)


@pytest.mark.parametrize("name", ["logit_bias", "stop_token_ids", "allowed_token_ids"])
def test_a_list_of_tokens_has_a_limit(name: str) -> None:
    model = replace(MODEL, max_listed_tokens=3)
    entries = [(at, 1.0) if name == "logit_bias" else at for at in range(4)]
    bind_request(options(sampling=SamplingParams(**{name: tuple(entries[:3])})), [1], model)
    with pytest.raises(InvalidRequestError, match=f"{name} holds 4 tokens; this service takes at most 3") as caught:
        bind_request(options(sampling=SamplingParams(**{name: tuple(entries)})), [1], model)
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (SamplingParams(allowed_token_ids=(0, 2)), True),
        (SamplingParams(allowed_token_ids=(0, 2), min_tokens=1), False),
        (SamplingParams(allowed_token_ids=(0, 5), min_tokens=1), True),
        (SamplingParams(allowed_token_ids=(5,), stop_token_ids=(5,), min_tokens=1), False),
        (SamplingParams(allowed_token_ids=(5, 6), bad_words=((5,), (6,))), False),
        (SamplingParams(allowed_token_ids=(5, 6), bad_words=((5,), (6, 5))), True),
        (SamplingParams(allowed_token_ids=(0, 5), bad_words=((5,),), min_tokens=1), False),
        (SamplingParams(bad_words=((5,),), min_tokens=1), True),
    ],
)
def test_of_the_allowed_tokens_one_has_to_be_possible(sampling: SamplingParams, possible: bool) -> None:
    if possible:
        bind_request(options(sampling=sampling), [1], MODEL)
        return
    with pytest.raises(InvalidRequestError, match="no token that bad_words and min_tokens leave") as caught:
        bind_request(options(sampling=sampling), [1], MODEL)
    assert caught.value.param == "allowed_token_ids"


def test_a_salt_has_a_limit() -> None:
    assert bind_request(options(cache_salt="s" * 512), [1], MODEL).cache_salt == "s" * 512
    with pytest.raises(InvalidRequestError, match="cache_salt has 513 characters; at most 512") as caught:
        options(cache_salt="s" * 513)
    assert caught.value.param == "cache_salt"


def test_an_answer_in_a_format_needs_an_end_among_the_allowed_tokens() -> None:
    grammar = Grammar(GrammarKind.REGEX, "a")
    bind_request(options(sampling=SamplingParams(grammar=grammar, allowed_token_ids=(0, 5))), [1], MODEL)
    with pytest.raises(InvalidRequestError, match="must be able to end; allow token 0"):
        bind_request(options(sampling=SamplingParams(grammar=grammar, allowed_token_ids=(5,))), [1], MODEL)


@pytest.mark.parametrize(("asked", "expected"), [(None, 5), (0, 0), (8, 8)])
def test_draft_tokens_default_to_the_servers(asked: int | None, expected: int) -> None:
    given = options(speculation=SpeculationOptions(num_speculative_tokens=asked))
    assert bind_request(given, [1], MODEL).num_speculative_tokens == expected


@pytest.mark.parametrize(
    ("mode", "proposer", "configured", "expected"),
    [
        ("auto", "draft", "auto", 8),
        ("on", "draft", "auto", 5),
        ("auto", "eagle3", "auto", 5),
        ("auto", "suffix", "auto", 16),
        ("auto", "draft", 3, 3),
        ("on", "draft", 3, 3),
    ],
)
def test_drafts_of_the_pool_may_be_longer_where_they_are_measured(mode, proposer, configured, expected) -> None:
    speculation = SpeculationConfig(num_speculative_tokens=configured)
    model = replace(
        MODEL,
        max_draft_tokens=16,
        default_draft_tokens=speculation.default_draft_tokens,
        measured_draft_tokens=speculation.max_draft_tokens,
    )
    given = options(speculation=SpeculationOptions(mode=mode, proposer=proposer))
    assert bind_request(given, [1], model).num_speculative_tokens == expected


@pytest.mark.parametrize(("proposer", "asked", "expected"), [("medusa", None, 4), ("medusa", 7, 4), ("draft", 7, 7)])
def test_no_more_is_planned_than_the_drafter_can_make(proposer: str, asked: int | None, expected: int) -> None:
    model = replace(MODEL, max_draft_depths={"medusa": 4})
    given = options(speculation=SpeculationOptions(proposer=proposer, num_speculative_tokens=asked))
    assert bind_request(given, [1], model).num_speculative_tokens == expected


def test_unless_asked_the_default_drafts() -> None:
    model = replace(MODEL, default_proposer="suffix")
    assert bind_request(options(), [1], model).speculation.proposer == "suffix"
    asked = options(speculation=SpeculationOptions(proposer="ngram"))
    assert bind_request(asked, [1], model).speculation.proposer == "ngram"


def test_too_many_or_empty_stop_strings_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="17 stop strings; at most 16"):
        options(stop=("x",) * 17)
    with pytest.raises(InvalidRequestError, match="stop string is empty"):
        options(stop=("x", ""))


def test_a_grammar_and_ignore_eos_do_not_go_together() -> None:
    grammar = Grammar(GrammarKind.JSON_OBJECT)
    assert options(sampling=SamplingParams(grammar=grammar)).sampling.grammar == grammar
    with pytest.raises(InvalidRequestError, match="leave out ignore_eos"):
        options(sampling=SamplingParams(grammar=grammar), ignore_eos=True)


def test_an_oversized_request_is_refused() -> None:
    check_request_bytes(10, 10)
    with pytest.raises(PromptTooLongError, match="11 bytes; at most 10"):
        check_request_bytes(11, 10)


def test_a_grammar_needs_a_token_that_ends_the_answer() -> None:
    wanted = options(sampling=SamplingParams(grammar=Grammar(GrammarKind.REGEX, "a")))
    assert bind_request(wanted, [1], MODEL).sampling.grammar is not None
    with pytest.raises(InvalidRequestError, match="no token that ends") as failure:
        bind_request(wanted, [1], dataclasses.replace(MODEL, eos_token_ids=frozenset()))
    assert failure.value.param == "grammar"


def test_max_tokens_is_cut_to_what_the_context_leaves() -> None:
    request = bind_request(options(sampling=SamplingParams(max_tokens=50)), [1] * 10, MODEL)
    assert request.sampling.max_tokens == 6


def test_a_lookup_goes_as_far_as_it_likes() -> None:
    given = options(speculation=SpeculationOptions(proposer="suffix"))
    assert bind_request(given, [1], MODEL).num_speculative_tokens == MODEL.max_draft_tokens


def test_an_unknown_proposer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match="'magic' is unknown; known are auto, draft, ngram, suffix, eagle3"):
        SpeculationOptions(proposer="magic")


def test_lossy_acceptance_is_the_operators_to_allow() -> None:
    typical = options(sampling=SamplingParams(acceptance=AcceptanceMode.TYPICAL))
    with pytest.raises(InvalidRequestError, match=r"acceptance typical is lossy.*allow_lossy"):
        bind_request(typical, [1], MODEL)
    assert bind_request(typical, [1], replace(MODEL, allow_lossy=True)).sampling.acceptance is AcceptanceMode.TYPICAL


def test_the_least_length_is_cut_with_the_most() -> None:
    asked = SamplingParams(max_tokens=2**63, min_tokens=2**62)
    sampling = bind_request(options(sampling=asked), [1] * 6, MODEL).sampling
    assert (sampling.min_tokens, sampling.max_tokens) == (10, 10)
