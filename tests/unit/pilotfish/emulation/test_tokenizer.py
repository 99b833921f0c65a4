"""An emulated model's tokenizer is always here, and everybody comes to the same one."""

from pathlib import Path

import pytest

from pilotfish.chat import ChatMessage
from pilotfish.config import Config, TargetConfig
from pilotfish.emulation.tokenizer import SPECIAL_TOKENS, WORDS, emulated_tokenizer_folder, spoken_tokens
from pilotfish.models.tokens.tokenizer import Tokenizer


def config(cache_dir: Path, model: str = "nobody/has-this") -> Config:
    return Config(target=TargetConfig(model=model), cache_dir=str(cache_dir))


@pytest.fixture
def made_here(tmp_path: Path) -> Tokenizer:
    return Tokenizer.load(emulated_tokenizer_folder(config(tmp_path)))


def test_the_target_s_own_is_taken_if_it_is_here(tmp_path: Path, model_folder: Path) -> None:
    assert emulated_tokenizer_folder(config(tmp_path, str(model_folder))) == model_folder


def test_two_machines_make_equal_ones(tmp_path: Path) -> None:
    folders = [emulated_tokenizer_folder(config(tmp_path / name)) for name in ("a", "b", "a")]
    assert folders[0] == folders[2] != folders[1]
    assert len({Tokenizer.load(folder).fingerprint for folder in folders}) == 1


def test_any_text_survives_it(made_here: Tokenizer) -> None:
    text = "Café, naïve 鱼\n"
    assert made_here.decode(made_here.encode(text)) == text
    assert made_here.apply_chat_template([ChatMessage("user", "hi")])[0] == SPECIAL_TOKENS.index("<|start|>")


def test_it_says_words(made_here: Tokenizer) -> None:
    spoken = spoken_tokens(made_here)
    assert made_here.decode(list(spoken)[:3]) == " a the of"
    assert len(spoken) == len(WORDS)
    assert spoken.stop == made_here.vocab_size
