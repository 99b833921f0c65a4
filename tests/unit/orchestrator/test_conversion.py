import pytest

from orchestrator.answers.output import AnswerText
from orchestrator.conversion import check_request, options_from_proto, prompt_from_proto
from orchestrator.requests.model_limits import ServedModel
from orchestrator.requests.options import RequestDefaults
from orchestrator.requests.prompt import ChatPrompt, Prompt
from orchestrator.requests.request import GenerationRequest, SpeculationOptions, bind_request
from pilotfish.chat import ChatMessage
from pilotfish.config import SpeculationConfig
from pilotfish.errors import InvalidRequestError
from pilotfish.messages import Verdict
from pilotfish.rpc.answer import chunk_to_proto
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from pilotfish.structured.bounds import MAX_JSON_ITEMS
from pilotfish.types import MAX_SEED, AcceptanceMode, Grammar, GrammarKind, SamplingParams, TokenLogprobs, TokenOrigin
from tests.support.byte_tokenizer import byte_tokenizer

DEFAULTS = RequestDefaults(SpeculationConfig())
TOKENIZER = byte_tokenizer()


def test_what_is_absent_takes_its_default() -> None:
    options = options_from_proto(pb.GenerateRequest(seed=1), DEFAULTS, TOKENIZER)
    assert options.sampling == SamplingParams(seed=1)
    assert options.speculation == SpeculationOptions(mode="auto", num_speculative_tokens=None, proposer="auto")
    assert (options.stop, options.ignore_eos) == ((), False)


def test_what_is_absent_is_the_models_own() -> None:
    defaults = RequestDefaults(SpeculationConfig(), {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1})
    sampling = options_from_proto(pb.GenerateRequest(seed=1, top_k=0, top_p=0.5), defaults, TOKENIZER).sampling
    assert sampling == SamplingParams(seed=1, temperature=0.6, top_k=0, top_p=0.5, repetition_penalty=1.1)


def test_what_is_given_is_taken_zeros_included() -> None:
    request = pb.GenerateRequest(
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0,
        max_tokens=7,
        presence_penalty=-1,
        frequency_penalty=1,
        repetition_penalty=2,
        seed=0,
        logprobs=0,
        logit_bias=[types_pb2.LogitBias(token_id=4, bias=-100)],
        stop=["a", "b"],
        stop_token_ids=[9],
        allowed_token_ids=[9, 4],
        ignore_eos=True,
        speculation=pb.SpeculationOptions(
            mode=pb.SPECULATION_MODE_OFF,
            num_speculative_tokens=0,
            proposer="ngram",
            acceptance=types_pb2.ACCEPTANCE_MODE_REJECTION,
        ),
    )
    options = options_from_proto(request, DEFAULTS, TOKENIZER)
    assert options.sampling == SamplingParams(
        temperature=0,
        top_p=0.5,
        top_k=3,
        max_tokens=7,
        presence_penalty=-1,
        frequency_penalty=1,
        repetition_penalty=2,
        seed=0,
        num_logprobs=0,
        logit_bias=((4, -100.0),),
        stop_token_ids=(9,),
        allowed_token_ids=(9, 4),
        acceptance=AcceptanceMode.REJECTION,
    )
    assert options.speculation == SpeculationOptions(mode="off", num_speculative_tokens=0, proposer="ngram")
    assert (options.stop, options.ignore_eos) == (("a", "b"), True)


def test_whether_the_mode_is_the_requests_own_is_kept() -> None:
    defaults = RequestDefaults(SpeculationConfig(mode="on"))
    for given, expected in (({}, False), ({"mode": pb.SPECULATION_MODE_ON}, True)):
        request = pb.GenerateRequest(speculation=pb.SpeculationOptions(**given))
        options = options_from_proto(request, defaults, TOKENIZER)
        assert options.speculation.mode == "on"
        model = ServedModel(
            vocab_size=300,
            max_context_tokens=99,
            max_draft_tokens=8,
            default_draft_tokens=5,
            measured_draft_tokens=5,
            eos_token_ids=frozenset(),
        )
        assert bind_request(options, (1,), model).says_mode is expected


def test_a_grammar_is_taken_and_its_kind_must_be_known() -> None:
    request = pb.GenerateRequest(grammar=types_pb2.Grammar(kind=types_pb2.GRAMMAR_KIND_REGEX, text="a+"))
    assert options_from_proto(request, DEFAULTS, TOKENIZER).sampling.grammar == Grammar(GrammarKind.REGEX, "a+")
    assert options_from_proto(pb.GenerateRequest(), DEFAULTS, TOKENIZER).sampling.grammar is None
    for kind in (0, 99):
        with pytest.raises(InvalidRequestError, match=f"GrammarKind {kind} is unknown"):
            options_from_proto(pb.GenerateRequest(grammar=types_pb2.Grammar(kind=kind)), DEFAULTS, TOKENIZER)


def test_the_servers_defaults_hold_where_the_request_is_silent() -> None:
    options = options_from_proto(
        pb.GenerateRequest(), RequestDefaults(SpeculationConfig(mode="off", proposer="ngram")), TOKENIZER
    )
    assert (options.speculation.mode, options.speculation.proposer) == ("off", "ngram")


def test_a_chunk_carries_origins_and_logprobs(toy_tokenizer) -> None:
    request = GenerationRequest(
        prompt_token_ids=(1,), sampling=SamplingParams(), speculation=SpeculationOptions(), num_speculative_tokens=4
    )
    logprobs = (TokenLogprobs(-0.5, (3, 4), (-0.5, -1.5)), TokenLogprobs(-2.0))
    chunk = AnswerText(toy_tokenizer, request).push(Verdict(1, 1, 2, 1, (3, 4), logprobs))
    proto = chunk_to_proto(chunk).chunk
    assert (proto.text, list(proto.token_ids)) == ("DE", [3, 4])
    assert list(proto.origins) == [TokenOrigin.ACCEPTED, TokenOrigin.RECOVERED]
    assert proto.logprobs[0].logprob == -0.5
    assert list(proto.logprobs[0].top_token_ids) == [3, 4]


def test_a_negative_seed_is_a_seed_of_its_own_as_over_http() -> None:
    seeds = [options_from_proto(pb.GenerateRequest(seed=seed), DEFAULTS, TOKENIZER).sampling.seed for seed in (-1, 5)]
    assert seeds == [MAX_SEED, 5]


def test_what_http_has_by_vllms_names_grpc_has_too() -> None:
    request = pb.GenerateRequest(
        min_tokens=3, max_tokens=9, bad_words=["ab"], include_stop=True, show_special_tokens=True, cache_salt="mine"
    )
    options = options_from_proto(request, DEFAULTS, TOKENIZER)
    assert options.sampling.min_tokens == 3
    assert tuple(TOKENIZER.encode("ab", add_special_tokens=False)) in options.sampling.bad_words
    assert (options.include_stop, options.skip_special_tokens, options.cache_salt) == (True, False, "mine")
    with pytest.raises(InvalidRequestError, match="min_tokens is 10; the answer may have 9"):
        options_from_proto(pb.GenerateRequest(min_tokens=10, max_tokens=9), DEFAULTS, TOKENIZER)
    with pytest.raises(InvalidRequestError, match="bad_words must hold words"):
        options_from_proto(pb.GenerateRequest(bad_words=[" "]), DEFAULTS, TOKENIZER)


def test_lists_of_too_many_items_are_refused_before_they_are_looked_at() -> None:
    messages = [pb.ChatMessage(role="user")] * MAX_JSON_ITEMS
    for request in (
        pb.GenerateRequest(chat=pb.ChatPrompt(messages=messages), stop=["a"]),
        pb.GenerateRequest(text="a", stop_token_ids=[7] * (MAX_JSON_ITEMS + 1)),
        pb.TokenizeRequest(chat=pb.ChatPrompt(messages=[*messages, messages[0]])),
    ):
        with pytest.raises(InvalidRequestError, match=f"more than {MAX_JSON_ITEMS} items"):
            check_request(request, 4_000_000)
    check_request(pb.GenerateRequest(chat=pb.ChatPrompt(messages=messages)), 4_000_000)
    check_request(pb.GenerateRequest(tokens=pb.TokenPrompt(token_ids=[7] * 2 * MAX_JSON_ITEMS)), 4_000_000)


def test_roles_are_those_of_http() -> None:
    def prompt(role: str) -> Prompt:
        chat = pb.ChatPrompt(messages=[pb.ChatMessage(role=role, content="sea")])
        return prompt_from_proto(pb.GenerateRequest(chat=chat), "chat")

    assert prompt("developer") == prompt("system") == ChatPrompt((ChatMessage("system", "sea"),))
    with pytest.raises(InvalidRequestError, match="the role 'robot' is unknown; known are system, user"):
        prompt("robot")
