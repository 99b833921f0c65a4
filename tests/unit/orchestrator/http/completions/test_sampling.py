from __future__ import annotations

import pytest

from orchestrator.http.completions.sampling import (
    GenerationFields,
    SpeculationFields,
    check_num_choices,
    generation_options,
    sample_options,
)
from orchestrator.requests.options import RequestDefaults
from pilotfish.config import SpeculationConfig
from pilotfish.errors import InvalidRequestError
from pilotfish.types import MAX_SEED, AcceptanceMode
from tests.support.byte_tokenizer import byte_tokenizer, byte_vocabulary

DEFAULTS = RequestDefaults(SpeculationConfig(mode="on", proposer="ngram"))


def options(defaults=DEFAULTS, **fields):
    return generation_options(
        GenerationFields(**fields),
        max_tokens=9,
        num_logprobs=None,
        grammar=None,
        defaults=defaults,
        tokenizer=byte_tokenizer(),
    )


def test_defaults() -> None:
    made = options(seed=1)
    assert (made.sampling.temperature, made.sampling.top_p, made.sampling.max_tokens) == (1.0, 1.0, 9)
    assert (made.speculation.mode, made.speculation.proposer) == ("on", "ngram")
    assert made.speculation.num_speculative_tokens is None
    assert made.sampling.acceptance is AcceptanceMode.COUPLED


@pytest.mark.parametrize(("given", "top_k"), [({}, 20), ({"top_k": None}, 20), ({"top_k": -1}, 0), ({"top_k": 5}, 5)])
def test_what_is_left_out_is_the_models_own(given, top_k) -> None:
    own = RequestDefaults(DEFAULTS.speculation, {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1})
    sampling = options(own, temperature=0.0, **given).sampling
    assert (sampling.temperature, sampling.top_k, sampling.repetition_penalty, sampling.top_p) == (0.0, top_k, 1.1, 1.0)


def test_every_field_arrives() -> None:
    made = options(
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        logit_bias={3: -100.0},
        seed=12,
        stop="end",
        stop_token_ids=[4],
        ignore_eos=True,
        speculation=SpeculationFields(mode="off", num_speculative_tokens=2, proposer="suffix", acceptance="rejection"),
    )
    sampling = made.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 7, 0.1)
    penalties = (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty)
    assert penalties == (1.1, 0.2, 0.3)
    assert (sampling.logit_bias, sampling.seed, sampling.stop_token_ids) == (((3, -100.0),), 12, (4,))
    assert (made.stop, made.ignore_eos) == (("end",), True)
    speculation = made.speculation
    assert (speculation.mode, speculation.num_speculative_tokens, speculation.proposer) == ("off", 2, "suffix")
    assert sampling.acceptance is AcceptanceMode.REJECTION


@pytest.mark.parametrize(("said", "may_learn"), [(None, True), (True, True), (False, False)])
def test_a_request_may_refuse_to_be_learned_from(said: bool | None, may_learn: bool) -> None:
    assert options(speculation=SpeculationFields(learn=said)).speculation.learn == may_learn


def test_seeds_follow_one_another_and_wrap() -> None:
    first = options(seed=MAX_SEED)
    assert [sample_options(first, index).sampling.seed for index in range(3)] == [MAX_SEED, 0, 1]
    assert options(seed=-1).sampling.seed == MAX_SEED


def test_without_a_seed_one_is_drawn() -> None:
    assert options().sampling.seed != options().sampling.seed


def test_the_number_of_answers_is_bounded_over_all_prompts() -> None:
    assert check_num_choices(None, 4, 8) == 1
    assert check_num_choices(2, 4, 8) == 2
    for bad, num_prompts, param in ((0, 4, "n"), (3, 4, "n"), (None, 9, "prompt"), (1, 9, "prompt")):
        with pytest.raises(InvalidRequestError) as failure:
            check_num_choices(bad, num_prompts, 8)
        assert failure.value.param == param


def test_bad_words_are_tokens_alone_and_behind_a_space() -> None:
    tokens = byte_vocabulary()
    found = options(bad_words=["a", "b", " a"]).sampling.bad_words
    assert found == ((tokens[b"a"],), (tokens[b" a"],), (tokens[b"b"],))
    for words in (["a", " "], ["a"] * 129, ["a", "b" * 257], [*["\U0001f41f" * 32] * 32, "a"]):
        with pytest.raises(InvalidRequestError) as failure:
            options(bad_words=words)
        assert failure.value.param == "bad_words"
    assert len(options(bad_words=["ab" * 16] * 128).sampling.bad_words) >= 1


def test_an_answer_cannot_be_longer_than_it_may() -> None:
    assert options(min_tokens=9).sampling.min_tokens == 9
    for number in (-1, 10):
        with pytest.raises(InvalidRequestError) as failure:
            options(min_tokens=number)
        assert failure.value.param == "min_tokens"
