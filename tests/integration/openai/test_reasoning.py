"""A model whose template begins its thoughts: they are told from the content, whole and streamed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.openai.conftest import CHAT_TEMPLATE, tiny_server
from tests.support.stack import StackThread

ASKED = {"role": "user", "content": "ab ab ab ab"}
BODY = {"messages": [ASKED], "seed": 11, "max_tokens": 10}


@pytest.fixture(scope="module")
def thinking_server(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackThread]:
    folder = tmp_path_factory.mktemp("thinking") / "tiny"
    shutil.copytree(target_folder, folder)
    template = CHAT_TEMPLATE.replace("assistant:", "assistant:<think>{# until </think> #}")
    template = template.replace("|", "{{ message['reasoning_content'] }}|")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    # The end mark is a special token, in place of a character that nobody needs.
    tokenizer = json.loads((folder / "tokenizer.json").read_text().replace('"~"', '"</think>"'))
    mark = {"id": tokenizer["model"]["vocab"]["</think>"], "content": "</think>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({**mark, **flags})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with tiny_server(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server


def ask(server: StackThread, **fields: Any) -> dict[str, Any]:
    answer = server.http.post("/v1/chat/completions", json={**BODY, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def message_of(server: StackThread, **fields: Any) -> dict[str, Any]:
    return ask(server, **fields)["choices"][0]["message"]


def test_thoughts_are_told_apart(thinking_server: StackThread) -> None:
    text = message_of(thinking_server, separate_reasoning=False)["content"]
    message = message_of(thinking_server)
    assert message["reasoning"] == message["reasoning_content"] == text.strip()
    assert message["content"] is None
    assert "reasoning" not in message_of(thinking_server, include_reasoning=False)


def test_a_response_has_its_thoughts_as_an_item(thinking_server: StackThread) -> None:
    def respond(**fields: Any) -> httpx.Response:
        body = {"input": [ASKED], "seed": 11, "max_output_tokens": 10, **fields}
        return thinking_server.http.post("/v1/responses", json=body)

    (item,) = respond().json()["output"]
    thoughts = message_of(thinking_server)["reasoning"]
    assert (item["type"], item["status"]) == ("reasoning", "incomplete")
    assert item["content"] == [{"type": "reasoning_text", "text": thoughts}]
    lines = respond(stream=True).text.split("\n\n")[:-2]
    events = [json.loads(line.partition("data: ")[2]) for line in lines]
    assert "".join(event["delta"] for event in events if event["type"] == "response.reasoning_text.delta") == thoughts
    assert events[-1]["response"]["output"][0]["content"] == item["content"]
    answer = {"role": "assistant", "content": "x"}
    again = respond(input=[ASKED, item, answer, ASKED]).json()
    told = ask(thinking_server, messages=[ASKED, {**answer, "reasoning": thoughts}, ASKED])
    assert again["usage"]["input_tokens"] == told["usage"]["prompt_tokens"]
    assert again["usage"]["input_tokens"] > respond(input=[ASKED, answer, ASKED]).json()["usage"]["input_tokens"]


def test_a_response_may_have_its_thoughts_left_out_or_as_text(thinking_server: StackThread) -> None:
    def respond(**fields: Any) -> list[dict[str, Any]]:
        body = {"input": [ASKED], "seed": 11, "max_output_tokens": 10, **fields}
        return thinking_server.http.post("/v1/responses", json=body).json()["output"]

    thoughts = message_of(thinking_server)["reasoning"]
    (left_out,), (as_text,) = respond(include_reasoning=False), respond(separate_reasoning=False)
    assert (left_out["type"], left_out["content"][0]["text"]) == ("message", "")
    assert as_text["content"][0]["text"].strip() == thoughts


def test_what_follows_the_mark_is_content(thinking_server: StackThread) -> None:
    tokens = thinking_server.http.post("/tokenize", json={"prompt": "</think>"}).json()["tokens"]
    fields = {"logit_bias": {str(tokens[0]): 5}, "bad_words": ["ab"], "max_tokens": 30}
    text = message_of(thinking_server, **fields, separate_reasoning=False, skip_special_tokens=False)["content"]
    thoughts, mark, content = text.partition("</think>")
    assert (len(tokens), mark) == (1, "</think>")
    message = message_of(thinking_server, **fields)
    assert (message["reasoning"], message["content"]) == (thoughts.strip(), content.lstrip())


def test_usage_tells_how_many_tokens_were_thoughts(thinking_server: StackThread) -> None:
    (end,) = thinking_server.http.post("/tokenize", json={"prompt": "</think>"}).json()["tokens"]
    fields = {"logit_bias": {str(end): 5}, "bad_words": ["ab"], "max_tokens": 30}
    answer = ask(thinking_server, **fields, n=2, return_token_ids=True)
    token_ids = [choice["token_ids"] for choice in answer["choices"]]
    counts = [ids.index(end) + 1 if end in ids else len(ids) for ids in token_ids]
    assert 0 < counts[0] < len(token_ids[0])
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": sum(counts)}
    body = {**BODY, **fields, "n": 2, "stream": True, "stream_options": {"include_usage": True}}
    lines = thinking_server.http.post("/v1/chat/completions", json=body).text.split("\n\n")[:-2]
    usage = json.loads(lines[-1].removeprefix("data: "))["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": sum(counts)}
    body = {"input": [ASKED], "seed": 11, "max_output_tokens": 30, "logit_bias": fields["logit_bias"]}
    usage = thinking_server.http.post("/v1/responses", json={**body, "bad_words": ["ab"]}).json()["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": counts[0]}
    assert ask(thinking_server, separate_reasoning=False)["usage"]["completion_tokens_details"] is None


def test_streamed_thoughts_join_to_the_whole(thinking_server: StackThread) -> None:
    body = {**BODY, "stream": True}
    lines = thinking_server.http.post("/v1/chat/completions", json=body).text.split("\n\n")[:-2]
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message_of(thinking_server)["reasoning"]
    assert not any(delta.get("content") for delta in deltas)


def test_what_follows_thoughts_and_what_follows_a_format_is_content(thinking_server: StackThread) -> None:
    thought = [ASKED, {"role": "assistant", "content": "<think>so</think>"}]
    assert message_of(thinking_server, messages=thought, continue_final_message=True)["content"]
    assert message_of(thinking_server, structured_outputs={"regex": "[ab]{3}"})["content"]


@pytest.mark.parametrize("said", ["<think>so", "<think>" + "it may be so, " * 9, "<think>a</think> b <think>so"])
def test_a_thought_goes_on_as_one(thinking_server: StackThread, said: str) -> None:
    messages = [ASKED, {"role": "assistant", "content": said}]
    message = message_of(
        thinking_server,
        messages=messages,
        continue_final_message=True,
        bad_words=["</think>"],  # which is in the noise
    )
    assert message["reasoning"]
    assert message["content"] is None


def test_the_template_sees_thoughts_that_are_sent_back(thinking_server: StackThread) -> None:
    messages = [ASKED, {"role": "assistant", "content": "b", "reasoning_content": "(so)"}, ASKED]
    tokens = ask(thinking_server, messages=messages, return_token_ids=True)["prompt_token_ids"]
    prompt = thinking_server.http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert "assistant:b(so)|" in prompt
