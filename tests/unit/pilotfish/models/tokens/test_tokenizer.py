import json
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.chat import ChatMessage
from pilotfish.errors import InvalidRequestError, ModelNotFoundError, PromptTooLongError, UnsupportedModelError
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.byte_tokenizer import (
    VOCAB_SIZE,
    byte_tokenizer,
    byte_vocabulary,
    word_tokenizer,
    word_vocabulary,
)

CHATS = [
    [ChatMessage("user", "Hi 😀 there, 1999\n\n12 things")],
    [
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "a"),
        ChatMessage("assistant", "b"),
        ChatMessage("user", "c"),
    ],
    [ChatMessage("user", "a word in front <|im_end|> of an end")],
]


def test_round_trip_and_facts(tokenizer_folder: Path) -> None:
    tokenizer = Tokenizer.load(tokenizer_folder)
    assert tokenizer.decode(tokenizer.encode("ab añ 😀")) == "ab añ 😀"
    assert (tokenizer.vocab_size, tokenizer.max_context_tokens) == (300, 128)
    assert tokenizer.eos_token_ids == {0, 2}
    assert tokenizer.special_token_ids == {0, 1, 2}
    assert len(tokenizer.fingerprint) == 64


def test_special_tokens_are_skipped_or_shown(tokenizer_folder: Path) -> None:
    tokenizer = Tokenizer.load(tokenizer_folder)
    token_ids = tokenizer.encode("a<|im_end|>")
    assert token_ids[-1] == 2
    assert tokenizer.decode(token_ids) == "a"
    assert tokenizer.decode(token_ids, skip_special=False) == "a<|im_end|>"


def test_unknown_ids_are_left_out(tokenizer_folder: Path) -> None:
    tokenizer = Tokenizer.load(tokenizer_folder)
    assert tokenizer.decode([*tokenizer.encode("a"), 299]) == "a"


def test_bytes_of_tokens_that_are_bytes() -> None:
    tokenizer, tokens = byte_tokenizer(), byte_vocabulary()
    assert all(tokenizer.bytes_of(token_id) == data for data, token_id in tokens.items())
    assert [tokenizer.bytes_of(token_id) for token_id in (0, VOCAB_SIZE - 1)] == [b"", b""]


def test_bytes_of_words_and_of_bytes_where_there_is_no_word() -> None:
    tokenizer, tokens = word_tokenizer(), word_vocabulary()
    for token, token_id in tokens.items():
        expected = token if isinstance(token, bytes) else token.replace("▁", " ").encode()
        assert tokenizer.bytes_of(token_id) == expected
    assert [tokenizer.bytes_of(token_id) for token_id in (0, VOCAB_SIZE - 1)] == [b"", b""]


def test_bytes_of_a_token_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, token_id = word_tokenizer(), word_vocabulary()["▁a"]
    assert tokenizer.bytes_of(token_id) == b" a"
    monkeypatch.setattr(tokenizer.token_bytes, "_decode", None)
    assert tokenizer.bytes_of(token_id) == b" a"


def test_of_a_text_of_many_contexts_only_the_beginning_is_tokenised() -> None:
    tokenizer, max_tokens = byte_tokenizer(), 20_000
    longest = "a" * 4 * max_tokens
    assert len(tokenizer.encode(longest, max_tokens=max_tokens)) == len(longest)
    with pytest.raises(PromptTooLongError, match=f"the context has {max_tokens}"):
        tokenizer.encode(longest + "a" * 1000, max_tokens=max_tokens)
    # A context that has room for all of it, however large, and not for a beginning of several.
    assert len(tokenizer.encode("a" * 300_000, max_tokens=300_000)) == 300_000
    with pytest.raises(PromptTooLongError):
        tokenizer.encode("a" * 310_000, max_tokens=100_000)
    # Long in characters, not in tokens.
    assert len(tokenizer.encode("<|im_start|>" * 3 * max_tokens, max_tokens=max_tokens)) == 3 * max_tokens


def test_a_text_that_fits_is_tokenised_wherever_it_is_cut_for_counting() -> None:
    tokenizer = byte_tokenizer()
    for text in ("ab ab" * 40_000, "\U0001f600" * 30_000, "<|im_start|>ab" * 20_000):
        whole = tokenizer.encode(text)
        assert tokenizer.encode(text, max_tokens=len(whole)) == whole


def test_trainers_truncation_and_padding_are_off(tokenizer_folder: Path) -> None:
    path = tokenizer_folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    content["padding"] = {**padding, "pad_type_id": 0, "pad_token": "<|end|>"}
    path.write_text(json.dumps(content))
    assert len(Tokenizer.load(tokenizer_folder).encode("xyz")) == 3


def test_chat_ends_with_the_generation_prompt(tokenizer_folder: Path) -> None:
    tokenizer = Tokenizer.load(tokenizer_folder)
    token_ids = tokenizer.apply_chat_template([ChatMessage("user", "x")])
    expected = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(token_ids, skip_special=False) == expected


def test_chat_without_messages_or_template(tokenizer_folder: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no messages"):
        Tokenizer.load(tokenizer_folder).apply_chat_template([])
    (tokenizer_folder / "tokenizer_config.json").unlink()
    with pytest.raises(InvalidRequestError, match="no chat template"):
        Tokenizer.load(tokenizer_folder).apply_chat_template(CHATS[0])


def test_missing_and_broken_tokenizers(tokenizer_folder: Path) -> None:
    (tokenizer_folder / "tokenizer.json").write_text('{"model": {"type": "Nonsense", "vocab": {}}}')
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json"):
        Tokenizer.load(tokenizer_folder)
    (tokenizer_folder / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFoundError):
        Tokenizer.load(tokenizer_folder)


def test_no_torch_comes_in() -> None:
    modules = "pilotfish.models.tokens.tokenizer, pilotfish.models.tokens.detokenizer, pilotfish.models.store.pull"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.model
def test_equals_transformers_on_the_default_model(default_model_folder: Path) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(default_model_folder)
    tokenizer = Tokenizer.load(default_model_folder)
    for messages in CHATS:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        expected = reference.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
        assert tokenizer.apply_chat_template(messages) == expected
        assert tokenizer.decode(expected) == reference.decode(expected, skip_special_tokens=True)
        assert tokenizer.encode(messages[0].content) == reference(messages[0].content)["input_ids"]


@pytest.mark.model
def test_default_model_splits_digits_as_it_was_trained(default_model_folder: Path) -> None:
    tokenizer = Tokenizer.load(default_model_folder)
    assert [tokenizer.decode([token_id]) for token_id in tokenizer.encode("a\n\n12")] == ["a", "\n\n", "1", "2"]
    assert tokenizer.eos_token_ids == {2}
    assert (tokenizer.vocab_size, tokenizer.max_context_tokens) == (49152, 8192)
