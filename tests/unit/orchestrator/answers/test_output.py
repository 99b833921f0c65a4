import pytest

from orchestrator.answers.output import AnswerText
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.messages import Verdict
from pilotfish.types import FinishReason, SamplingParams
from tests.support.byte_tokenizer import byte_tokenizer, byte_vocabulary


def output_of(tokenizer, stop=(), stop_token_ids=(), min_tokens=0, **options) -> AnswerText:
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(stop_token_ids=stop_token_ids, min_tokens=min_tokens),
        speculation=SpeculationOptions(),
        num_speculative_tokens=4,
        stop=stop,
        **options,
    )
    return AnswerText(tokenizer, request)


def verdict(text: str, num_accepted: int, num_draft: int = 4, finish=None, logprobs=(), token_ids=()) -> Verdict:
    """A verdict whose tokens are the letters of `text`, or token_ids."""
    token_ids = token_ids or tuple(ord(letter) - ord("A") for letter in text)
    return Verdict(1, 1, num_draft, num_accepted, token_ids, logprobs=logprobs, finish_reason=finish)


@pytest.mark.parametrize(
    ("stop", "text", "num_tokens", "num_accepted"),
    [("B", "A", 2, 2), ("BC", "A", 3, 3), ("DE", "ABC", 5, 4), ("A", "", 1, 1)],
)
def test_a_stop_string_cuts_the_block_it_falls_in(toy_tokenizer, stop, text, num_tokens, num_accepted) -> None:
    chunk = output_of(toy_tokenizer, stop=(stop,)).push(verdict("ABCDE", 4))
    assert (chunk.text, len(chunk.token_ids), chunk.num_accepted_tokens) == (text, num_tokens, num_accepted)
    assert len(chunk.origins) == num_tokens
    assert chunk.round_draft_tokens == (4,) * num_tokens
    assert (chunk.finish_reason, chunk.stopped_by) == (FinishReason.STOP, stop)


def test_stop_strings_count_behind_the_least_length(toy_tokenizer) -> None:
    output = output_of(toy_tokenizer, stop=("A",), min_tokens=3)
    assert output.push(verdict("AB", 1)).text == "AB"
    chunk = output.push(verdict("ABA", 2))
    assert (chunk.text, len(chunk.token_ids), chunk.stopped_by) == ("AB", 3, "A")
    output = output_of(toy_tokenizer, stop=("A",), min_tokens=3)
    chunk = output.push(verdict("AB", 1, finish=FinishReason.LENGTH))
    assert (chunk.text, chunk.finish_reason) == ("AB", FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("stop", "blocks", "text", "num_tokens", "stopped_by"),
    [
        (("CD",), ["ABCDE"], "AB", 4, "CD"),
        (("CD",), ["AB", "C", "DE"], "AB", 4, "CD"),
        (("BCD", "C"), ["ABC", "DE"], "A", 4, "BCD"),  # the shorter one ends within
        (("BCD", "C"), ["ABC", "EC"], "ABCE", 5, "C"),
        (("BC",), ["ABC", "DE"], "ABCDE", 5, None),
        (("CD",), ["ABC"], "ABC", 3, None),
        (("CX",), ["ABC", "DE"], "ABCDE", 5, None),
    ],
)
def test_a_stop_string_may_begin_within_the_least_length(
    toy_tokenizer, stop, blocks, text, num_tokens, stopped_by
) -> None:
    output = output_of(toy_tokenizer, stop=stop, min_tokens=3)
    chunks = [output.push(verdict(block, 0)) for block in blocks[:-1]]
    chunks.append(output.push(verdict(blocks[-1], 0, finish=FinishReason.LENGTH)))
    assert "".join(chunk.text for chunk in chunks) == text
    assert sum(len(chunk.token_ids) for chunk in chunks) == num_tokens
    assert chunks[-1].stopped_by == stopped_by


def test_held_text_comes_out_when_the_answer_ends_otherwise(toy_tokenizer) -> None:
    output = output_of(toy_tokenizer, stop=("XYZ",))
    chunk = output.push(verdict("AX", 1, finish=FinishReason.LENGTH))
    assert (chunk.text, chunk.finish_reason, chunk.stopped_by) == ("AX", FinishReason.LENGTH, None)


def test_a_stop_string_before_the_stop_token_wins(toy_tokenizer) -> None:
    output = output_of(toy_tokenizer, stop=("B",), stop_token_ids=(2,))
    chunk = output.push(verdict("ABC", 2, finish=FinishReason.STOP))
    assert (chunk.text, chunk.token_ids, chunk.stopped_by) == ("A", (0, 1), "B")


def test_an_incomplete_character_waits_and_comes_out_at_the_end() -> None:
    output, tokens = output_of(byte_tokenizer()), byte_vocabulary()
    half, rest = (tokens[b"\xf0\x9f"],), (tokens[b"\x98\x80"],)
    assert output.push(verdict("", 0, num_draft=0, token_ids=half)).text == ""
    assert output.push(verdict("", 0, num_draft=0, token_ids=rest)).text == "😀"
    assert output.push(verdict("", 0, 0, FinishReason.LENGTH, token_ids=half)).text == "\ufffd"


def test_a_stop_token_ends_the_tokens_but_is_not_text(toy_tokenizer) -> None:
    chunk = output_of(toy_tokenizer, stop_token_ids=(2,)).push(verdict("ABC", 2, finish=FinishReason.STOP))
    assert (chunk.text, chunk.token_ids, chunk.stopped_by) == ("AB", (0, 1, 2), 2)


@pytest.mark.parametrize(
    ("options", "text", "num_tokens", "stopped_by"),
    [
        ({}, "a<", 3, "<|im_end|>"),
        ({"include_stop": True}, "a<<|im_end|>", 3, "<|im_end|>"),
        ({"skip_special_tokens": False}, "a<", 3, "<|im_end|>"),
        ({"min_tokens": 3}, "a<b", 4, None),
    ],
)
def test_a_special_token_is_a_stop_string_though_it_is_not_text(options, text, num_tokens, stopped_by) -> None:
    tokens = byte_vocabulary()
    output = output_of(byte_tokenizer(), stop=("<|im_end|>",), **options)
    chunk = output.push(verdict("", 3, token_ids=(tokens[b"a"], tokens[b"<"], 2, tokens[b"b"])))
    assert (chunk.text, len(chunk.token_ids), chunk.stopped_by) == (text, num_tokens, stopped_by)
