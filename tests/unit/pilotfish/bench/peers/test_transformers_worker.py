"""transformers as a peer, on a tiny random model."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.bench.peers.transformers_worker import load
from tests.support.tiny_llama import tiny_llama

PROMPT = (5, 6, 7, 8, 5, 6, 7)
END = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_llama(0, spread=1, eos_token_id=END, bos_token_id=None, pad_token_id=END).save_pretrained(path)
    return path


def answers(folder: Path, mode: str, assistant: str = "", temperature: float = 0.0) -> list[list[int]]:
    """The groups of tokens as they came."""
    _, answer = load(str(folder), assistant, "float32")
    groups: list[list[int]] = []
    answer(PROMPT, 12, temperature, mode, lambda token_ids: groups.append(list(token_ids)))
    return groups


def flat(groups: list[list[int]]) -> list[int]:
    return [token_id for group in groups for token_id in group]


def test_plain_decoding_gives_one_token_at_a_time_without_the_prompt(folder: Path) -> None:
    groups = answers(folder, "plain")
    model = LlamaForCausalLM.from_pretrained(folder)
    expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False)[0, len(PROMPT) :].tolist()
    assert flat(groups) == expected
    assert all(len(group) == 1 for group in groups)


def test_speculation_gives_the_same_tokens_and_they_come_together(folder: Path) -> None:
    plain = flat(answers(folder, "plain"))
    assisted = answers(folder, "assisted", assistant=str(folder))
    assert flat(assisted) == plain
    assert any(len(group) > 1 for group in assisted)  # the assistant is the model itself
    assert flat(answers(folder, "lookup")) == plain
