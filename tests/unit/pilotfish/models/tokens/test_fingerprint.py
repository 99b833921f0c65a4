import copy
import json
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.errors import ModelNotFoundError, UnsupportedModelError
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint

TOKENS = st.lists(st.text(min_size=1, max_size=4), min_size=2, max_size=12, unique=True)


def tokenizer_json(tokens: list[str], num_added: int = 1) -> dict[str, Any]:
    """A tokenizer whose first tokens are added ones and whose merges pair up the rest."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "special": True} for i in range(num_added)],
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [[left, right] for left, right in pairwise(tokens[1:])],
        },
    }


def fingerprint(tokenizer: dict[str, Any], **dump_options: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer, **dump_options), encoding="utf-8")
        return tokenizer_fingerprint(folder)


@given(TOKENS)
def test_formatting_and_settings_do_not_enter(tokens: list[str]) -> None:
    tokenizer = tokenizer_json(tokens)
    other = copy.deepcopy(tokenizer)
    other["model"]["vocab"] = dict(reversed(tokenizer["model"]["vocab"].items()))
    other["truncation"] = {"max_length": 8}
    other["padding"] = {"pad_id": 0}
    other["post_processor"] = {"type": "ByteLevel"}
    assert fingerprint(tokenizer) == fingerprint(other, indent=2, ensure_ascii=False)


@given(TOKENS)
def test_added_tokens_may_stand_in_the_vocabulary_or_not(tokens: list[str]) -> None:
    tokenizer = tokenizer_json(tokens)
    other = copy.deepcopy(tokenizer)
    del other["model"]["vocab"][tokens[0]]
    assert fingerprint(tokenizer) == fingerprint(other)


@given(TOKENS, st.data())
def test_any_swapped_pair_of_ids_shows(tokens: list[str], data: st.DataObject) -> None:
    first, second = data.draw(st.lists(st.sampled_from(range(len(tokens))), min_size=2, max_size=2, unique=True))
    tokenizer = tokenizer_json(tokens, num_added=0)
    other = copy.deepcopy(tokenizer)
    vocab = other["model"]["vocab"]
    vocab[tokens[first]], vocab[tokens[second]] = vocab[tokens[second]], vocab[tokens[first]]
    assert fingerprint(tokenizer) != fingerprint(other)


def test_old_and_new_merges_are_equal() -> None:
    tokenizer = tokenizer_json(["<s>", "a", "b", "c"])
    other = copy.deepcopy(tokenizer)
    other["model"]["merges"] = ["a b", "b c"]
    assert fingerprint(tokenizer) == fingerprint(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda tokenizer: tokenizer["model"]["merges"].reverse(),
        lambda tokenizer: tokenizer["model"]["merges"].pop(),
        lambda tokenizer: tokenizer["added_tokens"][0].update(special=False),
        lambda tokenizer: tokenizer["added_tokens"].append({"id": 9, "content": "<x>", "special": True}),
        lambda tokenizer: tokenizer["model"]["vocab"].update(d=4),
    ],
    ids=["merge order", "merge gone", "special flag", "added token", "longer vocabulary"],
)
def test_differences_show(change: Callable[[dict[str, Any]], object]) -> None:
    tokenizer = tokenizer_json(["<s>", "a", "b", "c"])
    other = copy.deepcopy(tokenizer)
    change(other)
    assert fingerprint(tokenizer) != fingerprint(other)


def test_unigram_ids_are_places() -> None:
    tokenizer = {"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}}
    swapped = {"model": {"type": "Unigram", "vocab": [["b", -2.0], ["a", -1.0]]}}
    assert fingerprint(tokenizer) != fingerprint(swapped)


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"tokenizer\.json"):
        tokenizer_fingerprint(tmp_path)


@pytest.mark.parametrize("text", ["{}", '{"model": {}}', '{"model": {"vocab": 3}}', '{"model": 1}'])
def test_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UnsupportedModelError):
        tokenizer_fingerprint(tmp_path)
