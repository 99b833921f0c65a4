"""gpt-oss: its attention sinks and experts through the fallback decoder, and its channels through the API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import GptOssForCausalLM

from pilotfish.config import HttpConfig
from tests.integration.openai.conftest import tiny_server
from tests.support.stack import StackThread
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer
from tests.support.tiny_models import tiny_model

MARKS = ["<|return|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>"]
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}{{ '<|channel|>final' if m['role'] == 'assistant' }}<|message|>"
    "{{ m['content'] }}{{ m['thinking'] }}<|end|>{% endfor %}"
    "{# <|channel|>analysis<|message|> <|channel|>commentary message.thinking #}"
    "{{ tools }}{% if add_generation_prompt %}<|start|>assistant{{ begun }}{% endif %}"
)
FORMAT = {"regex": "[ab]{3}"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"enum": [1, 2]}}}}}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt-oss")
    model = tiny_model("gpt_oss", torch.bfloat16, vocab_size=PRINTABLE_VOCAB_SIZE - 1 + len(MARKS))
    model.save_pretrained(folder)
    save_printable_tokenizer(folder, MARKS, chat_template=TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackThread]:
    with tiny_server(model_folder, tmp_path_factory.mktemp("cache")) as server:
        yield server


@pytest.fixture
def http(server: StackThread) -> httpx.Client:
    return server.http


def post(http: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    answer = http.post(f"/v1/{path}", json={"temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def message_of(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    fields = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 60, **fields}
    return post(http, "chat/completions", **fields)["choices"][0]["message"]


def test_tokens_are_those_of_transformers(http: httpx.Client, model_folder: Path) -> None:
    """Also where the prompt is in the cache, and with drafts."""
    prompt = [10, 20, 30, 40, 50] * 9
    model = GptOssForCausalLM.from_pretrained(model_folder, dtype=torch.bfloat16)
    expected = model.generate(
        torch.tensor([prompt]), max_new_tokens=24, do_sample=False, pad_token_id=0, eos_token_id=0
    )
    fields = {"prompt": prompt, "max_tokens": 24, "return_token_ids": True}
    for mode in ("off", "on"):
        (choice,) = post(http, "completions", **fields, speculation={"mode": mode, "proposer": "ngram"})["choices"]
        assert choice["token_ids"] == expected[0, len(prompt) :].tolist()
    assert choice["speculation"]["report"]["num_draft_tokens"] > 0


@pytest.mark.parametrize("mode", ["off", "on"])
def test_calls_and_documents_are_written_on_their_channels(http: httpx.Client, mode: str) -> None:
    fields = {"tools": [TOOL], "parallel_tool_calls": False, "speculation": {"mode": mode, "proposer": "ngram"}}
    message = message_of(http, tool_choice="required", **fields)
    (call,) = message["tool_calls"]
    assert (call["function"]["name"], message["content"]) == ("f", None)
    assert json.loads(call["function"]["arguments"]).keys() <= {"a"}
    content = message_of(http, structured_outputs=FORMAT, speculation=fields["speculation"])["content"]
    assert (len(content), set(content) <= {"a", "b"}) == (3, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "assistant", "content": "so"}], "continue_final_message": True},
        {"chat_template_kwargs": {"begun": "<|channel|>final<|message|>"}},
    ],
)
def test_a_document_goes_on_where_the_prompt_is_on_its_channel(http: httpx.Client, fields: dict[str, Any]) -> None:
    content = message_of(http, structured_outputs=FORMAT, add_generation_prompt="messages" not in fields, **fields)[
        "content"
    ]
    assert (len(content), set(content) <= {"a", "b"}) == (3, True)


def test_a_document_has_no_channel_where_none_is_told(server: StackThread) -> None:
    with server.other_orchestrator(http=HttpConfig(reasoning_parser="none")) as http:
        assert set(message_of(http, structured_outputs=FORMAT)["content"]) <= {"a", "b"}


@pytest.mark.parametrize(("channel", "name"), [("analysis", "reasoning"), ("final", "content")])
def test_an_answer_goes_by_its_channel(http: httpx.Client, channel: str, name: str) -> None:
    """The prompt has the header: the model's own text is noise."""
    begun = {"chat_template_kwargs": {"begun": f"<|channel|>{channel}<|message|>"}}
    fields = {**begun, "max_tokens": 20, "logit_bias": {str(index): -100 for index in range(len(MARKS))}}
    message = message_of(http, **fields)
    assert [each for each in ("reasoning", "content") if message.get(each)] == [name]
    assert message_of(http, **fields, separate_reasoning=False)["content"] == message[name]


def test_the_template_gets_thoughts_by_their_name(http: httpx.Client) -> None:
    said = {"role": "assistant", "content": "b", "reasoning": "(so)"}
    messages = [said, {"role": "user", "content": "ab"}]
    tokens = post(http, "chat/completions", messages=messages, max_tokens=1, return_token_ids=True)["prompt_token_ids"]
    prompt = http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert "b(so)" in prompt
