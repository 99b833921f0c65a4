"""POST /v1/responses through OpenAI's own client: text, formats and calls, whole and streamed."""

import json

import openai
import pytest

from orchestrator.answers.output import AnswerText, OutputChunk
from pilotfish.messages import Verdict
from tests.integration.openai.test_structured import ENDLESS
from tests.support.stack import StackThread

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "find", "parameters": SCHEMA, "strict": True}
GREEDY = {"model": "", "temperature": 0, "max_output_tokens": 24}
LONG = {**GREEDY, "max_output_tokens": 200}
FORMAT = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
CALLING = {**LONG, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}


def chat_text(client: openai.OpenAI, messages: list[dict[str, str]]) -> str | None:
    answer = client.chat.completions.create(model="", messages=messages, temperature=0, max_tokens=24)
    return answer.choices[0].message.content


def test_a_response_says_what_a_chat_says(real_client: openai.OpenAI) -> None:
    answer = real_client.responses.create(input="which fish?", instructions="be brief", store=False, **GREEDY)
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "which fish?"}]
    assert answer.output_text == chat_text(real_client, messages) != ""
    assert answer.id.startswith("resp_")
    assert (answer.status, answer.instructions, answer.store) == ("incomplete", "be brief", False)
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage is not None
    assert answer.usage.output_tokens == 24
    assert answer.usage.total_tokens == 24 + answer.usage.input_tokens


@pytest.mark.parametrize("mode", ["off", "on"])
def test_a_streams_events_make_up_the_response(real_client: openai.OpenAI, mode: str) -> None:
    body = {"speculation": {"mode": mode, "proposer": "ngram"}}
    whole = real_client.responses.create(input="a a a a", extra_body=body, **GREEDY)
    events = list(real_client.responses.create(input="a a a a", stream=True, extra_body=body, **GREEDY))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events if event.type != "response.output_text.delta"]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens == 24


def test_log_probabilities_are_a_chats_where_they_are_included(real_client: openai.OpenAI) -> None:
    chat = real_client.chat.completions.create(
        model="",
        messages=[{"role": "user", "content": "a a"}],
        temperature=0,
        max_tokens=24,
        logprobs=True,
        top_logprobs=2,
    )
    expected = [each.model_dump() for each in chat.choices[0].logprobs.content]  # type: ignore[union-attr]
    asked = {**GREEDY, "input": "a a", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    (item,) = real_client.responses.create(**asked).output
    assert [each.model_dump() for each in item.content[0].logprobs] == expected
    assert len(expected) == 24
    events = list(real_client.responses.create(stream=True, **asked))
    told = [each for event in events if event.type == "response.output_text.delta" for each in event.logprobs]
    assert [each.model_dump() for each in events[-1].response.output[0].content[0].logprobs] == expected
    assert [each.token for each in told] == [each["token"] for each in expected][: len(told)]
    assert told


def test_what_is_not_included_is_named(real_client: openai.OpenAI) -> None:
    raw = real_client.responses.with_raw_response.create(
        input="a", include=["reasoning.encrypted_content"], top_logprobs=2, **GREEDY
    )
    assert raw.parse().output[0].content[0].logprobs == []
    named = raw.headers["x-pilotfish-ignored-fields"]
    assert "include (only message.output_text.logprobs is served)" in named
    assert "top_logprobs (" in named


def test_a_format_is_held_to_and_the_clients_own_accumulation_works(real_client: openai.OpenAI) -> None:
    answer = real_client.responses.create(input="which fish?", text=FORMAT, **LONG)
    assert answer.status == "completed"
    assert set(json.loads(answer.output_text)) == {"n"}
    with real_client.responses.stream(input="which fish?", text=FORMAT, **LONG) as stream:
        assert stream.get_final_response().output_text == answer.output_text


def test_a_call_and_its_result_go_on_in_the_next_request(real_client: openai.OpenAI) -> None:
    answer = real_client.responses.create(input="which fish?", **CALLING)
    (call,) = answer.output
    assert (call.type, call.name, answer.status) == ("function_call", "find", "completed")
    assert set(json.loads(call.arguments)) == {"n"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "a cod"}
    conversation = [{"role": "user", "content": [{"type": "input_text", "text": "which fish?"}]}, call, result]
    following = real_client.responses.create(input=conversation, tools=[TOOL], tool_choice="none", **GREEDY)
    assert following.output[0].type == "message"
    assert following.output_text


def test_a_call_is_streamed(real_client: openai.OpenAI) -> None:
    (call,) = real_client.responses.create(input="which fish?", **CALLING).output
    events = list(real_client.responses.create(input="which fish?", stream=True, **CALLING))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == call.arguments
    kinds = [event.type.removeprefix("response.") for event in events if "delta" not in event.type]
    assert kinds[2:] == ["output_item.added", "function_call_arguments.done", "output_item.done", "completed"]
    added, done, item = (event for event in events if event.type.removeprefix("response.") in kinds[2:5])
    assert (added.item.name, added.item.arguments, added.item.call_id) == ("find", "", item.item.call_id)
    assert done.arguments == item.item.arguments == events[-1].response.output[0].arguments == call.arguments
    with real_client.responses.stream(input="which fish?", **CALLING) as stream:
        kept = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
    assert kept[-1] == call.arguments


def test_a_call_that_is_cut_off_is_incomplete(real_client: openai.OpenAI) -> None:
    # The bytes of <tool_call>\n{"name": "find", "arguments": {" and no more.
    body = {**CALLING, "max_output_tokens": 45}
    (call,) = real_client.responses.create(input="which fish?", **body).output
    assert (call.status, call.arguments[0]) == ("incomplete", "{")


def test_what_was_asked_is_repeated_as_it_was_sent(real_server: StackThread) -> None:
    number = {"type": "number", "multipleOf": 0.5, "maximum": 1e3, "default": 2.5}
    schema = {"type": "object", "properties": {"x": number}, "required": ["x"], "additionalProperties": False}
    asked = {
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}},
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": False}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "metadata": {"a": "0.5"},
        "temperature": 0.5,
        "top_p": 0.25,
        "max_output_tokens": 3,
        "instructions": "be brief",
    }
    answer = real_server.http.post("/v1/responses", json={"input": "a", **asked}).json()
    assert {name: answer[name] for name in asked} == asked
    lines = real_server.http.post("/v1/responses", json={"input": "a", "stream": True, **asked}).text.split("\n\n")
    for line in (lines[0], lines[-3]):
        response = json.loads(line.partition("data: ")[2])["response"]
        assert {name: response[name] for name in asked} == asked
    answer = real_server.http.post("/v1/responses", json={"input": "a", "max_output_tokens": 1, "text": {}}).json()
    assert answer["reasoning"] == {"effort": None, "summary": None}
    assert answer["text"] == {"format": {"type": "text"}}


def test_a_stream_that_fails_says_so_as_openais_do(real_client: openai.OpenAI) -> None:
    body = {**ENDLESS, "logit_bias": {"0": -100}}
    events = list(real_client.responses.create(input="a", stream=True, extra_body=body, **LONG))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    failed = events[-1]
    assert (failed.type, failed.response.status, failed.response.id) == (
        "response.failed",
        "failed",
        events[0].response.id,
    )
    assert "cannot be followed any further" in failed.response.error.message
    assert failed.response.error.code == "invalid_request_error"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    (item,) = failed.response.output
    assert (item.status, item.content[0].text) == ("incomplete", "".join(deltas))
    with real_client.responses.stream(input="a", extra_body=body, **LONG) as stream:
        assert [event.type for event in stream][-1] == "response.failed"


def test_a_fault_within_a_stream_tells_nothing_of_itself(
    emulated_server: StackThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    push, left = AnswerText.push, [None] * 40

    def failing(self: AnswerText, verdict: Verdict) -> OutputChunk:
        if not left:
            raise KeyError("secret")
        left.pop()
        return push(self, verdict)

    monkeypatch.setattr(AnswerText, "push", failing)
    body = {"input": "a", "stream": True, "ignore_eos": True, "speculation": {"mode": "off"}}
    lines = emulated_server.http.post("/v1/responses", json=body).text.split("\n\n")
    failed = json.loads(lines[-3].partition("data: ")[2])
    assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", "server_error")
    assert "secret" not in lines[-3]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": []}, "input"),
        ({"input": "a", "prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content"),
        ({"input": "a", "text": {"format": {"type": "banana"}}}, "text.format.type"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "output": "a"}]}, "input[0]"),
        ({"input": "a", "text": FORMAT, "extra_body": {"response_format": {"type": "text"}}}, "response_format"),
        ({"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "a", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "a", "tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"input": "a", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "fish"}}}}, None),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    real_client: openai.OpenAI, fields: dict[str, object], param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as failure:
        real_client.responses.create(**{**GREEDY, **fields})
    assert param is None or (failure.value.param, param in failure.value.body["message"]) == (param, True)


def test_what_a_response_does_not_use_is_named_as_it_was_sent(real_server: StackThread) -> None:
    unused = {"return_token_ids": True, "speculation": {"return_tokens": True}, "reasoning": {"effort": "low"}}
    unused["prompt_logprobs"] = 0
    read = {"chat_template_kwargs": {"mood": "wry"}, "stream_options": {"include_usage": True}, "stream": True}
    body = {"input": "a", "max_output_tokens": 1, **unused, **read}
    response = real_server.http.post("/v1/responses", json=body)
    assert response.status_code == 200
    assert response.headers["x-pilotfish-ignored-fields"].split(", ") == [
        "prompt_logprobs (responses do not have it)",
        "return_token_ids (responses do not have it)",
        "speculation.return_tokens (responses do not have it)",
        "stream_options (responses do not have it)",
        "reasoning.effort (the chat template does not read it)",
    ]
