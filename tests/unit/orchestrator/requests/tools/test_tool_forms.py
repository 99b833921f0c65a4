"""Every form: found in text however it is cut, chosen by the template, and written when a call is demanded."""

import dataclasses
import itertools
import json
import re
from types import SimpleNamespace
from typing import Any, cast, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.requests.reasoning import PARSERS as REASONING_PARSERS
from orchestrator.requests.tools.tool_calls import ToolAnswer, ToolCallParser, joined_calls
from orchestrator.requests.tools.tool_forms import PARSERS, tool_form
from orchestrator.requests.tools.tool_forms.deepseek_v3 import DEEPSEEK_V3, DEEPSEEK_V31
from orchestrator.requests.tools.tool_forms.form import ToolForm
from orchestrator.requests.tools.tool_forms.gpt_oss import GPT_OSS
from orchestrator.requests.tools.tool_forms.hermes import HERMES
from orchestrator.requests.tools.tool_forms.llama3_json import LLAMA3_JSON
from orchestrator.requests.tools.tool_forms.mistral import MISTRAL_ARGS, MISTRAL_LIST
from orchestrator.requests.tools.tool_use import tool_use
from pilotfish.config.orchestrator import HttpConfig
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.small_vocabulary import is_whole

Told = tuple[str, list[tuple[str, dict[str, Any]]]]
TWO = [("f", {"a": "}]; [TOOL_CALLS]"}), ("get-it", {})]
WRITTEN = [
    (
        MISTRAL_LIST,
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "}]; [TOOL_CALLS]"}}, {"name": "get-it", "arguments": {}}]',
    ),
    (MISTRAL_ARGS, '[TOOL_CALLS]f[ARGS]{"a": "}]; [TOOL_CALLS]"}[TOOL_CALLS]get-it[ARGS]{}'),
    (LLAMA3_JSON, '{"name": "f", "parameters": {"a": "}]; [TOOL_CALLS]"}}; {"name": "get-it", "parameters": {}}'),
    (
        DEEPSEEK_V3,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"a": "}]; [TOOL_CALLS]"}\n```<｜tool▁call▁end｜>\n'
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get-it\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        DEEPSEEK_V31,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "}]; [TOOL_CALLS]"}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>get-it<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        GPT_OSS,
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "}]; [TOOL_CALLS]"}<|end|>'
        "<|start|>assistant<|channel|>commentary to=functions.get-it <|constrain|>json<|message|>{}",
    ),
    (
        HERMES,
        '<tool_call>\n{"name": "f", "arguments": {"a": "}]; [TOOL_CALLS]"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get-it", "arguments": {}}\n</tool_call>',
    ),
]
"""As the models' own chat templates write them."""
FORMS = pytest.mark.parametrize(("form", "text"), WRITTEN)


def told(form: ToolForm, *pieces: str) -> Told:
    parser = ToolCallParser(form, [name for name, _ in TWO])
    answers = [*map(parser.push, pieces), parser.finish()]
    calls = joined_calls(piece for answer in answers for piece in answer.calls)
    return "".join(answer.content for answer in answers), [(call.name, json.loads(call.arguments)) for call in calls]


@FORMS
def test_calls_are_found_however_the_text_is_cut(form: ToolForm, text: str) -> None:
    assert told(form, text) == told(form, *text) == ("", TWO)
    for cut in range(len(text)):
        assert told(form, text[:cut], text[cut:]) == ("", TWO)
    if not form.is_bare:
        assert told(form, *f"So: {text}") == ("So:", TWO)


@given(data=st.data(), written=st.sampled_from(WRITTEN), cuts=st.lists(st.integers(0, 200), max_size=9))
def test_pieces_make_no_difference(data: st.DataObject, written: tuple[ToolForm, str], cuts: list[int]) -> None:
    form, text = written
    parts = [text, text[:-1], "{", "}", '"', "\\", " so ", *re.split(r"(\W+)", text)]
    text = "".join(data.draw(st.lists(st.sampled_from(parts), max_size=12)))

    def joined(*pieces: str) -> list[object]:
        parser = ToolCallParser(form, ["f", "get-it"])
        answers = [*map(parser.push, pieces), parser.finish()]
        calls = joined_calls(piece for answer in answers for piece in answer.calls)
        return ["".join(answer.content for answer in answers), *((call.name, call.arguments) for call in calls)]

    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert joined(text) == joined(*text) == joined(*(text[start:end] for start, end in itertools.pairwise(edges)))


@pytest.mark.parametrize("form", [form for form, _ in WRITTEN])
def test_what_is_no_call_stays_text(form: ToolForm) -> None:
    for text in (
        "{7} b",
        form.begin,
        f"a {form.begin}b",
        f"{form.begin} {{'a'}}",
        '{"name": "f"} ',
        f"{form.begin}{'a' * 300}",
    ):
        assert told(form, text) == told(form, *text) == (text, [])


def test_an_object_that_names_no_tool_is_a_document() -> None:
    text = '{"name": "Ada", "parameters": {"age": 3}}'
    assert told(LLAMA3_JSON, text) == told(LLAMA3_JSON, *text) == (text, [])
    assert told(LLAMA3_JSON, f"<|python_tag|>{text}") == ("", [("Ada", {"age": 3})])


@FORMS
def test_arguments_are_told_as_they_are_written_and_may_be_cut_off(form: ToolForm, text: str) -> None:
    before, _, _ = text.partition('{"a"')
    assert told(form, before) == told(form, *before) == (before, [])
    parser = ToolCallParser(form, ["f"])
    pieces = [piece for character in f'{before}{{"a' for piece in parser.push(character).calls]
    assert [(piece.name, piece.arguments) for piece in pieces] == [("f", ""), ("", "{"), ("", '"'), ("", "a")]
    assert parser.finish() == ToolAnswer("")


@FORMS
def test_a_demanded_call_is_in_the_models_own_form(form: ToolForm, text: str) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    functions = [{"name": "f", "parameters": parameters}, {"name": "get-it"}]
    tools = [{"type": "function", "function": function} for function in functions]
    assert accepts(dataclasses.replace(tool_use(tools, "required"), form=form), text)
    assert not accepts(dataclasses.replace(tool_use(tools, "required", False), form=form), text)
    assert not accepts(dataclasses.replace(tool_use(tools, "required"), form=form), "{7}")
    assert not accepts(dataclasses.replace(tool_use(tools, "required"), form=form), text.replace('"a"', '"b"'))


def accepts(use: Any, text: str) -> bool:
    return is_whole(use.grammar, text)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (LLAMA3_JSON, '<|python_tag|>{"name": "f", "parameters": {}}', ("", [("f", {})])),
        (LLAMA3_JSON, '\n{"name": "f", "arguments": {}} so', ("so", [("f", {})])),
        (LLAMA3_JSON, 'a {"name": "f", "parameters": {}}', ('a {"name": "f", "parameters": {}}', [])),
        (MISTRAL_ARGS, '[TOOL_CALLS]f{"a": 1}', ("", [("f", {"a": 1})])),
        (MISTRAL_ARGS, '[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1}', ("", [("f", {"a": 1})])),
        (MISTRAL_LIST, 'a[TOOL_CALLS] [{"name": "f", "arguments": {}}', ("a", [("f", {})])),
    ],
)
def test_other_ways_of_models(form: ToolForm, text: str, expected: Told) -> None:
    assert told(form, text) == told(form, *text) == expected


def test_ids_of_calls_are_such_as_the_template_takes() -> None:
    call, _ = ToolCallParser(MISTRAL_ARGS).push("[TOOL_CALLS]f[ARGS]{} ").calls
    assert len(call.call_id) == 9
    assert call.call_id.isalnum()


@pytest.mark.parametrize(
    ("name", "template", "expected"),
    [
        ("auto", "{{ tools }}", HERMES),
        ("auto", "<tool_call>", HERMES),
        ("auto", 'the format {"name": function name, "parameters": dictionary of', LLAMA3_JSON),
        ("auto", "'[TOOL_CALLS]' + name + '[ARGS]'", MISTRAL_ARGS),
        ("auto", "'[TOOL_CALLS][' + calls", MISTRAL_LIST),
        ("auto", "'function<｜tool▁sep｜>' + name + '\\n```json'", DEEPSEEK_V3),
        ("auto", "name + '<｜tool▁sep｜>'", DEEPSEEK_V31),
        ("auto", "'<|channel|>commentary json<|message|>'", GPT_OSS),
        ("mistral", "<tool_call>", MISTRAL_LIST),
        ("hermes", "[TOOL_CALLS]", HERMES),
    ],
)
def test_the_template_tells_the_form(name: str, template: str, expected: ToolForm) -> None:
    assert tool_form(name, tokenizer_with(template)) == expected


def test_the_configuration_names_every_parser() -> None:
    names = get_type_hints(HttpConfig)
    assert set(get_args(names["tool_call_parser"])) == {"auto", *PARSERS}
    assert set(get_args(names["reasoning_parser"])) == {"auto", "none", *REASONING_PARSERS}


def tokenizer_with(template: str, special: tuple[str, ...] = ()) -> Tokenizer:
    ids = dict(zip(special, itertools.count(5)))
    encode = lambda text, **_: [ids[text]] if text in ids else [1, 2]  # noqa: E731
    fake = SimpleNamespace(chat_template=template, special_token_ids=frozenset(ids.values()), encode=encode)
    return cast(Tokenizer, fake)


def test_marks_that_are_special_tokens_are_written_as_such() -> None:
    form = tool_form("mistral", tokenizer_with("[TOOL_CALLS][ARGS]", ("[TOOL_CALLS]", "[ARGS]")))
    assert form.literal("[TOOL_CALLS]f[ARGS]") == '"" <[5]> "f" <[6]> ""'
    assert form.literal("") == '""'


def test_parsers_are_named_as_in_vllm() -> None:
    assert list(PARSERS) == ["hermes", "llama3_json", "mistral", "deepseek_v3", "deepseek_v31", "openai"]
