"""gpt-oss' answers taken apart, whole and in pieces."""

import pytest

from orchestrator.requests.harmony import HarmonyIds, HarmonyParser
from orchestrator.requests.reasoning import AnswerParser
from orchestrator.requests.tools.tool_calls import ToolCallParser, joined_calls
from orchestrator.requests.tools.tool_forms.gpt_oss import GPT_OSS

TURN = "<|start|>assistant"
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
COMMENTARY = "<|channel|>commentary"
CALL = f"{COMMENTARY} to=functions.f<|message|>"


def told(prompt_end: str, *pieces: str, **options: bool) -> tuple[str, str, list[tuple[str, str]]]:
    parser = AnswerParser(HarmonyParser(prompt_end, **options), ToolCallParser(GPT_OSS))
    answers = [*map(parser.push, pieces), parser.finish()]
    calls = joined_calls(piece for answer in answers for piece in answer.calls)
    return (
        "".join(answer.reasoning for answer in answers),
        "".join(answer.content for answer in answers),
        [(call.name, call.arguments) for call in calls],
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ANALYSIS}so <|x<|end|>{TURN}{FINAL}The < answer<|return|>", ("so <|x", "The < answer", [])),
        (f"{ANALYSIS}a<|end|>{TURN}{ANALYSIS}b<|end|>{TURN}{FINAL}c", ("a\nb", "c", [])),
        (
            f'{ANALYSIS}a<|end|>{TURN}{COMMENTARY} to=functions.f-1 <|constrain|>json<|message|>{{"b": 1}}<|call|>',
            ("a", "", [("f-1", '{"b": 1}')]),
        ),
        (f" to=functions.f{COMMENTARY} json<|message|>{{}}<|call|>", ("", "", [("f", "{}")])),
        (
            f"{COMMENTARY}<|message|>I look.<|end|>{TURN}{CALL}{{}}<|end|>"
            f"{TURN} to=functions.g{COMMENTARY}<|message|>{{}}",
            ("", "I look.", [("f", "{}"), ("g", "{}")]),
        ),
        (f"{CALL}{{}}", ("", "", [("f", "{}")])),
        (f"{COMMENTARY} to=python<|message|>1 + 1<|call|>", ("1 + 1", "", [])),
        (f"{CALL}no<|call|>", ("no", "", [])),
        (
            f'{CALL} {{"a": "<|end|>"}}\n<|end|>{TURN}{FINAL}b',
            ("", "b", [("f", '{"a": "<|end|>"}')]),
        ),
        (f"{CALL}", ("", "", [])),
        (f'{CALL}{{"a', ("", "", [("f", '{"a')])),
        (f"{ANALYSIS}a<|end|>{TURN}plain<|return|>", ("a", "plain", [])),
        ("<|channel|>final text", ("", "text", [])),
        ("to=5 is five", ("", "to=5 is five", [])),
        (f"{FINAL}quoted {CALL}{{}}", ("", f"quoted {CALL}{{}}", [])),
        (f"{ANALYSIS}cut off<|end|>{TURN}<|channel|>fin", ("cut off", "", [])),
        (f"{ANALYSIS}a<|end|>{TURN}{FINAL}b<|end|>{TURN}{FINAL}c", ("a", "b\nc", [])),
        ('{"held to": "a format"}', ("", '{"held to": "a format"}', [])),
        (f"<|channel|>{'x' * 300}", ("", f"<|channel|>{'x' * 300}", [])),
        ("", ("", "", [])),
    ],
)
def test_messages_are_told_by_their_channel_however_the_text_is_cut(text: str, expected: object) -> None:
    assert told(TURN, text) == told(TURN, *text) == expected
    for cut in range(len(text)):
        assert told(TURN, text[:cut], text[cut:]) == expected


def test_an_answer_goes_on_where_the_prompt_ends() -> None:
    assert told(f"{TURN}{FINAL}It is", " so.") == ("", " so.", [])
    assert told(f"{TURN}{FINAL}a <", "b") == ("", "b", [])
    assert told(f"{TURN}{FINAL}a", f"{FINAL}framed") == ("", "framed", [])
    assert told(f"{TURN}<|channel|>", "final<|message|>a") == ("", "a", [])
    assert told(f'{TURN}{CALL}{{"a": ', "1}") == ("", "1}", [])
    assert told(f"{TURN}{ANALYSIS}It", f" may<|end|>{TURN}{FINAL}No") == (" may", "No", [])
    assert told("<|start|>user<|message|>hi<|end|>", f"{TURN}{FINAL}a") == ("", "a", [])


def test_thoughts_may_be_content() -> None:
    text = f"{ANALYSIS}a<|end|>{TURN}{FINAL}b"
    assert told(TURN, text, splits_thoughts=False) == told(TURN, *text, splits_thoughts=False) == ("", "a\nb", [])
    quoted = f"{ANALYSIS}{CALL}{{}}"
    assert (
        told(TURN, quoted, splits_thoughts=False)
        == told(TURN, *quoted, splits_thoughts=False)
        == ("", f"{CALL}{{}}", [])
    )


def test_a_call_where_none_is_offered_is_a_thought() -> None:
    text = f"{CALL}{{}}<|end|>{TURN}{FINAL}b"
    assert told(TURN, text, finds_calls=False) == told(TURN, *text, finds_calls=False) == ("{}", "b", [])


def test_tokens_of_thoughts_are_counted() -> None:
    parser = HarmonyParser(TURN, HarmonyIds(channel=1, analysis=2, ends=frozenset({3, 4})))
    for token_ids in ([1], [2, 9, 8], [8, 3, 7], [1, 6, 9, 8, 4, 1, 2], [9]):
        parser.count(token_ids)
    assert parser.num_tokens == 6 + 3
    assert HarmonyParser(TURN).num_tokens is None
