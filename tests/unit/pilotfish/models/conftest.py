"""A tiny model folder: byte-level BPE with a few merges, and the JSON files around it; no weights."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.config import default_cache_dir
from pilotfish.models.native.build import build_kernels, find_compiler
from pilotfish.models.store.catalogue import DEFAULT_MODEL
from pilotfish.models.store.model_store import ModelCache
from tests.support.byte_tokenizer import byte_backend, byte_vocabulary
from tests.support.native_kernels import KERNELS_HERE, NamedKernels

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer_files(folder: Path, vocab_size: int = 300) -> None:
    """Everything of a tiny Llama's folder but the weights."""
    byte_backend().save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": TEMPLATE})
    )


@pytest.fixture(scope="session")
def write_tiny_model() -> Callable[[Path], None]:
    """write_tokenizer_files, for fixtures of a wider scope."""
    return write_tokenizer_files


@pytest.fixture(scope="session")
def token_of() -> Callable[[bytes], int]:
    """The token id of a byte, or of a merge, of the tiny tokenizer."""
    return byte_vocabulary().__getitem__


@pytest.fixture(scope="session")
def kernel_cache() -> Path:
    """The cache folder that the services use as well, with the native kernels compiled."""
    if find_compiler() is None:
        pytest.skip("native kernels: no C++ compiler")
    cache = Path(default_cache_dir())
    build_kernels(cache)
    return cache


@pytest.fixture(scope="session", params=KERNELS_HERE)
def kernels(request: pytest.FixtureRequest) -> NamedKernels:
    """Every value of engine.kernels that this machine has, and emulated tiles: for compiled_for."""
    kernels: NamedKernels = request.param
    return kernels


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    write_tokenizer_files(folder)
    return folder


@pytest.fixture
def model_folder(tokenizer_folder: Path) -> Path:
    """As tokenizer_folder, with a safetensors file of one tensor of 6 parameters."""
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (tokenizer_folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    return tokenizer_folder


@pytest.fixture
def default_model_folder() -> Path:
    """The real default model, where it has been pulled."""
    cache = ModelCache(Path(default_cache_dir()))
    if not cache.is_complete(DEFAULT_MODEL.name):
        pytest.skip(f"{DEFAULT_MODEL.name} is not in {cache.root}: `pilotfish models pull {DEFAULT_MODEL.name}`")
    return cache.folder(DEFAULT_MODEL.name)
