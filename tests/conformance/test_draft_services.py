"""Every drafter that runs in the draft service keeps the answers of its target: the registry says which there are.

Target and drafter are tiny and random, with the default model's tokenizer; a drafter that is trained is what its
training begins with. So a room that is added is tested here without an edit.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from pilotfish.config import Config, config_from_dict
from pilotfish.drafter_registry import DRAFTERS, Location, Needs
from pilotfish.models.loading import load_model
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.request import TrainingRequest
from pilotfish.training.trainee import new_trainee
from tests.support.conformance import CASES, Server, difference
from tests.support.stack import StackThread
from tests.support.tiny_llama import tiny_llama

NAMES = tuple(name for name, kind in DRAFTERS.items() if Location.DRAFT_SERVICE in kind.runs_in)
TIGHT_KV_TOKENS = 1024
"""Too few for what the case `preemption` asks at once."""


@pytest.fixture(scope="module")
def target(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    for path in default_model.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    tokenizer = Tokenizer.load(default_model)
    model = tiny_llama(
        vocab_size=tokenizer.vocab_size,
        max_position_embeddings=2048,
        bos_token_id=None,
        num_hidden_layers=8,
        eos_token_id=sorted(tokenizer.eos_token_ids)[0],
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def weights(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a drafter that is trained."""

    def make(name: str) -> Path:
        work = tmp_path_factory.mktemp(name)
        request = TrainingRequest(
            method=DRAFTERS[name].trained_as, target=str(target), out=work / "out", cache_dir=work, draft_vocab_size=0
        )
        trainee = new_trainee(request, load_model(str(target), cache_dir=work), [], work)
        trainee.save(work / "out")
        return work / "out"

    return make


@pytest.fixture(scope="module", params=NAMES)
def url(
    request: pytest.FixtureRequest, target: Path, weights: Callable[[str], Path], tmp_path_factory
) -> Iterator[str]:
    needs = DRAFTERS[request.param].needs
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": TIGHT_KV_TOKENS}
    draft: dict[str, Any] = {"proposer": request.param, "model": str(target), "engine": engine}
    if needs is Needs.FEATURES:
        draft["head"] = str(weights(request.param))
    config: Config = config_from_dict(
        {
            "target": {"model": str(target), "engine": engine},
            "draft": draft,
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "tree_nodes": 8}},
            "cache_dir": str(tmp_path_factory.mktemp("cache")),
        }
    )
    with StackThread(config, with_draft=True) as server:
        yield server.url


def test_it_drafts(url: str) -> None:
    body = {
        "messages": [{"role": "user", "content": "la la la la la la la la la la la la"}],
        "max_tokens": 200,
        "temperature": 0,
        "speculation": {"mode": "on", "proposer": "draft"},
    }
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["choices"][0]["speculation"]["report"]["num_draft_tokens"] > 0


@cache
def plain_answers(case: str, url: str) -> list[Any]:
    return CASES[case](Server(url, {"speculation": {"mode": "off"}}))


@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_the_same_with_speculation(url: str, case: str) -> None:
    drafted = Server(url, {"speculation": {"mode": "on", "proposer": "draft"}})
    assert difference(plain_answers(case, url), CASES[case](drafted)) == ""
