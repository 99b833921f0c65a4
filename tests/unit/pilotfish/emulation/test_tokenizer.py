"""An emulated model's tokenizer is always here, and everybody comes to the same one."""

from pathlib import Path

import pytest

from pilotfish.chat import ChatMessage
from pilotfish.config import Config, TargetConfig
from pilotfish.emulation.tokenizer import WORDS, emulated_tokenizer_folder, spoken_tokens
from pilotfish.models.tokens.tokenizer import Tokenizer


def folder_of(tmp_path: Path, model: str) -> Path:
    return emulated_tokenizer_folder(Config(target=TargetConfig(model=model), cache_dir=str(tmp_path)))


@pytest.fixture
def words(tmp_path: Path) -> Tokenizer:
    return Tokenizer.load(folder_of(tmp_path, "nobody/has-this"))


def test_the_target_s_own_is_taken_if_it_is_here(tmp_path: Path, model_folder: Path) -> None:
    assert folder_of(tmp_path, str(model_folder)) == model_folder


def test_any_text_survives_it(words: Tokenizer) -> None:
    assert words.folder == WORDS
    text = "Café, naïve 鱼\n"
    assert words.decode(words.encode(text)) == text
    assert words.decode(words.apply_chat_template([ChatMessage("user", "hi")])[:1], skip_special=False) == "<|start|>"


def test_it_says_words(words: Tokenizer) -> None:
    spoken = spoken_tokens(words)
    assert words.decode(list(spoken)[:3]) == " a the of"
    assert words.decode(list(spoken)[-1:]) == " forgets"
    assert spoken.stop == words.vocab_size
