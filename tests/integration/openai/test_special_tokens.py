"""A model whose tokenizer adds a token before texts: who asks for none gets none."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, processors

from tests.integration.openai.conftest import CHAT_TEMPLATE, tiny_server
from tests.support.stack import StackThread
from tests.support.tiny_llama import END_TOKEN

BEGIN = 0


@pytest.fixture(scope="module")
def server(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackThread]:
    folder = tmp_path_factory.mktemp("beginning") / "tiny"
    shutil.copytree(target_folder, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_TOKEN} $A", special_tokens=[(END_TOKEN, BEGIN)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    with tiny_server(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server


@pytest.mark.parametrize("text", ["ab", "a" * 600, ""])
def test_a_text_has_them_unless_the_request_says_no(server: StackThread, text: str) -> None:
    def tokens(**fields: bool) -> list[int]:
        answer = server.http.post("/tokenize", json={"prompt": text, **fields}).json()
        assert answer["count"] == len(answer["tokens"])
        return answer["tokens"]

    bare = tokens(add_special_tokens=False)
    assert len(bare) == len(text)
    assert tokens() == tokens(add_special_tokens=True) == [BEGIN, *bare]
    for fields in ({"add_special_tokens": False}, {}):
        body = {"prompt": text, "max_tokens": 1, "return_token_ids": True, **fields}
        answer = server.http.post("/v1/completions", json=body)
        if tokens(**fields):
            assert answer.json()["choices"][0]["prompt_token_ids"] == tokens(**fields)
        else:
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


def test_a_chat_has_those_of_its_template(server: StackThread) -> None:
    chat = {"messages": [{"role": "user", "content": "ab"}], "add_special_tokens": True}
    tokenized = server.http.post("/tokenize", json=chat)
    answered = server.http.post("/v1/chat/completions", json={**chat, "max_tokens": 1})
    assert len(tokenized.json()["tokens"]) == answered.json()["usage"]["prompt_tokens"] == len("user:ab|assistant:")
    for answer in (tokenized, answered):
        ignored = answer.headers["x-pilotfish-ignored-fields"]
        assert ignored == "add_special_tokens (the chat template writes them)"
