"""A whole Pilotfish in this process: real gRPC on loopback, emulated engines, a byte-level tokenizer."""

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from pilotfish.config import Config, load_config
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from tests.support.loop_thread import LoopThread

SPECIAL_TOKENS = ["<|end|>", "<|start|>"]
VOCAB_SIZE = len(SPECIAL_TOKENS) + 2 + 94
TEMPLATE = "{% for message in messages %}<|start|>{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer of the printable ASCII characters and no weights."""
    folder = tmp_path_factory.mktemp("model")
    # GPT-2's stand-ins for the space and the newline, and the characters that stand for themselves.
    alphabet = ["\u0120", "\u010a", *(chr(code) for code in range(0x21, 0x7F))]
    vocab = {token: token_id for token_id, token in enumerate([*SPECIAL_TOKENS, *alphabet])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL_TOKENS)
    backend.save(str(folder / "tokenizer.json"))
    config = {"model_type": "llama", "vocab_size": VOCAB_SIZE, "max_position_embeddings": 512, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|end|>"}))
    return folder


async def start(config: Config, folder: Path, exits: AsyncExitStack) -> str:
    """The public address of the three services, which end with the exits."""
    # Here, so that the tests of the library below need no service.
    from tests.support.stack import running_stack

    target, draft = (
        EmulatedEngine(
            role,
            language_model=HashLanguageModel(vocab_size=VOCAB_SIZE, first_token_id=len(SPECIAL_TOKENS)),
            max_context_tokens=512,
            tokenizer_fingerprint=tokenizer_fingerprint(folder),
        )
        for role in ("target", "draft")
    )
    stack = await exits.enter_async_context(running_stack(config, target_engine=target, draft_engine=draft))
    return stack.orchestrator.address


@pytest.fixture(scope="session")
def address(model_folder: Path) -> Iterator[str]:
    """The public address of a Pilotfish that speculates over emulated engines."""
    overrides = [f"target.model={model_folder}", f"draft.model={model_folder}"]
    # Whether a draft comes in time is another matter.
    overrides += ["orchestrator.speculation.allow_lossy=true", "orchestrator.speculation.draft_deadline_ms=10000"]
    config = load_config(overrides=overrides)
    loop, exits = LoopThread(), AsyncExitStack()
    yield loop.run(start(config, model_folder, exits))
    loop.run(exits.aclose())
    loop.close()


@pytest.fixture
def no_child_left() -> Iterator[None]:
    """Every process that the test starts has ended after it; servers of other tests may go on."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before
