"""Drafters in the target, through real services: the public API to the engine and back."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest
import torch

from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import OrchestratorServer
from pilotfish.config import config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.conversion import grammar_to_proto
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc, types_pb2
from pilotfish.types import Grammar, GrammarKind
from target_service.server import start_target
from tests.support.threaded_engine import ThreadedEngine

Ask = Callable[..., Awaitable[tuple[list[int], pb.SpeculationStats]]]
"""Keywords of SpeculationOptions, the temperature and a grammar -> output tokens and what became of the drafts."""
GRAMMAR = grammar_to_proto(Grammar(GrammarKind.REGEX, "([a-f][0-9]){200}"))
IN_TURNS = re.compile("([a-f][0-9])*[a-f]?")


@pytest.fixture(scope="module")
def ending_target(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target with a token that ends answers: grammars need one."""
    folder = tmp_path_factory.mktemp("ending") / "target"
    shutil.copytree(target_folder, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 0}))
    return folder


@pytest.fixture
async def make_stack(ending_target: Path, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Ask]]]:
    threads = torch.get_num_threads()
    async with contextlib.AsyncExitStack() as exits:

        async def make(drafter: dict[str, object], **speculation: object) -> Ask:
            engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}
            config = config_from_dict(
                {
                    "target": {
                        "model": str(ending_target),
                        "port": 0,
                        "engine": engine,
                        "drafter": drafter,
                    },
                    "orchestrator": {"port": 0, "speculation": {"decode_run_tokens": 4, **speculation}},
                    "cache_dir": str(tmp_path),
                }
            )
            target = await start_target(config, engine=ThreadedEngine(build_engine(config, "target")))
            exits.push_async_callback(target.drain_and_stop, 0)
            directory = ReplicaDirectory()
            directory.set_replicas("target", {target.address: target.address})
            orchestrator = await OrchestratorServer.start(config, directory)
            exits.push_async_callback(orchestrator.drain_and_stop, 0)
            channel = grpc.aio.insecure_channel(orchestrator.address)
            exits.push_async_callback(channel.close)
            stub = inference_pb2_grpc.InferenceStub(channel)

            async def ask(
                temperature: float = 0.0, grammar: types_pb2.Grammar | None = None, **options: object
            ) -> tuple[list[int], pb.SpeculationStats]:
                request = pb.GenerateRequest(
                    text="The pilot fish swims ahead; the big one decides.",
                    max_tokens=40,
                    temperature=temperature,
                    seed=11,
                    grammar=grammar,
                    ignore_eos=grammar is None,
                    speculation=pb.SpeculationOptions(**options),  # type: ignore[arg-type]
                )
                token_ids: list[int] = []
                statistics = pb.SpeculationStats()
                async for message in stub.Generate(request, timeout=60):
                    token_ids.extend(message.chunk.token_ids)
                    if message.HasField("summary"):
                        statistics = message.summary.speculation
                return token_ids, statistics

            return ask

        yield make
    torch.set_num_threads(threads)


@pytest.mark.parametrize("tree_nodes", [0, 12], ids=["chains", "trees"])
@pytest.mark.parametrize("proposer", ["eagle3", "early_exit"])
async def test_the_text_is_that_of_plain_decoding(
    make_stack: Callable[..., Awaitable[Ask]], head_folder: Path, proposer: str, tree_nodes: int
) -> None:
    drafter = {"proposer": proposer, "model": str(head_folder) if proposer == "eagle3" else ""}
    ask = await make_stack(drafter, tree_nodes=tree_nodes)
    for temperature, grammar in ((0.0, None), (0.9, None), (0.9, GRAMMAR)):
        plain, off = await ask(temperature, grammar, mode=pb.SPECULATION_MODE_OFF, proposer=proposer)
        assert len(plain) > 20
        assert grammar is None or IN_TURNS.fullmatch(text_of(plain))
        assert off.num_draft_tokens == 0
        for mode in (pb.SPECULATION_MODE_ON, pb.SPECULATION_MODE_AUTO):
            drafted, statistics = await ask(
                temperature, grammar, mode=mode, proposer=proposer, num_speculative_tokens=4
            )
            assert drafted == plain
            if mode == pb.SPECULATION_MODE_ON:
                assert statistics.num_draft_tokens > 20
                assert statistics.reason == ""


def text_of(token_ids: list[int]) -> str:
    """By ../conftest.py's vocabulary: an end, a space, then all printable characters."""
    return "".join(chr(token_id - 2 + 0x21) for token_id in token_ids)


async def test_a_target_that_has_another_drafter_says_so(make_stack: Callable[..., Awaitable[Ask]]) -> None:
    ask = await make_stack({"proposer": "early_exit"})
    plain, _ = await ask(mode=pb.SPECULATION_MODE_OFF)
    token_ids, statistics = await ask(mode=pb.SPECULATION_MODE_ON, proposer="medusa")
    assert token_ids == plain
    assert statistics.num_draft_tokens == 0
    assert "no drafter medusa in the target: it has early_exit" in statistics.reason
