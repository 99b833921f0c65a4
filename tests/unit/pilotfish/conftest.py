"""A whole Pilotfish in this process: real gRPC on loopback, emulated engines, a byte-level tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


async def start(config: Config, folder: Path) -> list[Any]:
    """The three servers; the orchestrator is last."""
    # Here, so that the tests of the library below need no service.
    from draft_service.server import start_draft
    from orchestrator.replicas.directory import ReplicaDirectory
    from orchestrator.server import OrchestratorServer
    from target_service.server import start_target

    engines = [
        EmulatedEngine(
            role,
            language_model=HashLanguageModel(vocab_size=VOCAB_SIZE, first_token_id=len(SPECIAL_TOKENS)),
            max_context_tokens=512,
            tokenizer_fingerprint=tokenizer_fingerprint(folder),
        )
        for role in ("target", "draft")
    ]
    target = await start_target(config, engine=engines[0])
    draft = await start_draft(config, engine=engines[1])
    directory = ReplicaDirectory()
    directory.set_replicas("target", {"t": target.address})
    directory.set_replicas("draft", {"d": draft.address})
    orchestrator = await OrchestratorServer.start(config, directory)
    assert await orchestrator.wait_ready(30)
    return [target, draft, orchestrator]


async def stop(servers: list[Any]) -> None:
    for server in reversed(servers):
        await server.drain_and_stop(1)


@pytest.fixture(scope="session")
def address(model_folder: Path) -> Iterator[str]:
    """The public address of a Pilotfish that speculates over emulated engines."""
    ports = [f"{name}.port=0" for name in ("target", "draft", "orchestrator")]
    config = load_config(overrides=[*ports, f"target.model={model_folder}", f"draft.model={model_folder}"])
    loop = LoopThread()
    servers = loop.run(start(config, model_folder))
    yield servers[-1].address
    loop.run(stop(servers))
    loop.close()


@pytest.fixture
def no_child_left() -> Iterator[None]:
    """Every process that the test starts has ended after it; servers of other tests may go on."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before
