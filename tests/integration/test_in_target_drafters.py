"""Drafters in the target, through real services: the public API to the engine and back."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from pilotfish.config import config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.conversion import grammar_to_proto
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.types import Grammar, GrammarKind
from tests.support.stack import Stack, running_stack
from tests.support.threaded_engine import ThreadedEngine

RunStack = Callable[..., AbstractAsyncContextManager[Stack]]
PROMPT = "The pilot fish swims ahead; the big one decides."
OFF, ON = pb.SPECULATION_MODE_OFF, pb.SPECULATION_MODE_ON
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
def run_stack(ending_target: Path, tmp_path: Path) -> RunStack:
    def run(drafter: dict[str, object], **speculation: object) -> AbstractAsyncContextManager[Stack]:
        engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}
        config = config_from_dict(
            {
                "target": {"model": str(ending_target), "engine": engine, "drafter": drafter},
                "orchestrator": {"speculation": {"decode_run_tokens": 4, **speculation}},
                "cache_dir": str(tmp_path),
            }
        )
        core = build_engine(config, "target")
        return running_stack(config, with_draft=False, target_engine=ThreadedEngine(core))

    return run


@pytest.mark.parametrize("proposer", ["eagle3", "medusa", "early_exit"])
@pytest.mark.parametrize(
    ("tree_nodes", "samplings"),
    [(0, [{"temperature": 0.0}]), (12, [{"temperature": 0.9}, {"temperature": 0.9, "grammar": GRAMMAR}])],
    ids=["chains", "trees"],
)
async def test_the_text_is_that_of_plain_decoding(
    run_stack: RunStack,
    head_folder: Path,
    medusa_folder: Path,
    proposer: str,
    tree_nodes: int,
    samplings: list[dict[str, Any]],
) -> None:
    folder = {"eagle3": head_folder, "medusa": medusa_folder, "early_exit": ""}[proposer]
    async with run_stack({"proposer": proposer, "model": str(folder)}, tree_nodes=tree_nodes) as stack:
        for sampling in samplings:
            request = {"seed": 11, "max_tokens": 24, **sampling}
            off = await stack.ask(PROMPT, **request, speculation={"mode": OFF, "proposer": proposer})
            assert len(off.token_ids) > 20
            assert "grammar" not in sampling or IN_TURNS.fullmatch(text_of(off.token_ids))
            assert off.speculation.num_draft_tokens == 0
            for mode in (ON, pb.SPECULATION_MODE_AUTO):
                speculation = {"mode": mode, "proposer": proposer, "num_speculative_tokens": 4}
                drafted = await stack.ask(PROMPT, **request, speculation=speculation)
                assert drafted.token_ids == off.token_ids
                if mode == ON:
                    assert drafted.speculation.num_draft_tokens > 5  # those that pay
                    assert drafted.speculation.reason == ""


def test_a_bare_exit_has_no_weights_to_find_room_for(ending_target: Path, tmp_path: Path) -> None:
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024, "quantization": "auto"}
    target = {"model": str(ending_target), "engine": engine, "drafter": {"proposer": "early_exit", "exit_layer": 1}}
    core = build_engine(config_from_dict({"target": target, "cache_dir": str(tmp_path)}), "target")
    assert core.model.proposer == "early_exit"


def text_of(token_ids: list[int]) -> str:
    """By ../conftest.py's vocabulary: an end, a space, then all printable characters."""
    return "".join(chr(token_id - 2 + 0x21) for token_id in token_ids)


async def test_a_target_that_has_another_drafter_says_so(run_stack: RunStack) -> None:
    async with run_stack({"proposer": "none", "lookup": "ngram"}) as stack:
        off = await stack.ask(PROMPT, temperature=0, speculation={"mode": OFF})
        answer = await stack.ask(PROMPT, temperature=0, speculation={"mode": ON, "proposer": "eagle3"})
        assert answer.token_ids == off.token_ids
        assert answer.speculation.num_draft_tokens == 0
        assert "no drafter eagle3 in the target: it has ngram" in answer.speculation.reason
