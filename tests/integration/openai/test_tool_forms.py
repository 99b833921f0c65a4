"""A model whose mark of calls is a special token: a demanded call is written with it, and found."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.openai.conftest import CHAT_TEMPLATE, tiny_server

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"enum": [1, 2]}}}}}
BODY = {"messages": [{"role": "user", "content": "ab"}], "seed": 3, "max_tokens": 100, "tools": [TOOL]}


@pytest.fixture(scope="module")
def mistral(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("mistral") / "tiny"
    shutil.copytree(target_folder, folder)
    template = CHAT_TEMPLATE + "{# [TOOL_CALLS]name[ARGS] #}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    tokenizer = json.loads((folder / "tokenizer.json").read_text().replace('"~"', '"[TOOL_CALLS]"'))
    mark = {"id": tokenizer["model"]["vocab"]["[TOOL_CALLS]"], "content": "[TOOL_CALLS]", "special": True}
    tokenizer["added_tokens"].append(
        {**mark, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
    )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with tiny_server(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server.http


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_demanded_call(mistral: httpx.Client, choice: Any) -> None:
    body = {**BODY, "tool_choice": choice, "parallel_tool_calls": False, "return_token_ids": True}
    answer = mistral.post("/v1/chat/completions", json=body).json()
    (mark,) = mistral.post("/tokenize", json={"prompt": "[TOOL_CALLS]"}).json()["tokens"]
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], len(call["id"])) == ("f", 9)
    assert json.loads(call["function"]["arguments"]).keys() <= {"a"}
    assert answer["choices"][0]["token_ids"][0] == mark


def test_a_demanded_call_of_a_response(mistral: httpx.Client) -> None:
    tool = {"type": "function", **TOOL["function"]}
    body = {"input": "ab", "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    (call,) = mistral.post("/v1/responses", json=body).json()["output"]
    assert (call["type"], call["name"]) == ("function_call", "f")
