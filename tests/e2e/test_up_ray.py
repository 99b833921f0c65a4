"""`pilotfish up --ray` with a target in two ranks: the Ray Serve application, a placement group with a process in each
bundle, and what happens when a part of it is killed."""

import os
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest

from pilotfish.client.answer import Chunk, GenerateOptions, Summary
from pilotfish.client.inference import InferenceClient
from pilotfish.drafters.eagle3.checkpoint import save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.launch.specs import free_ports
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama
from tests.support.tiny_models import tiny_eagle3_config

pytestmark = [pytest.mark.model, pytest.mark.ray]

RANK = "pilotfish.parallel.rank"


@pytest.fixture(scope="module")
def up(start_up: Callable, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(vocab_size=PRINTABLE_VOCAB_SIZE, max_position_embeddings=512).save_pretrained(folder)
    save_printable_tokenizer(folder)
    head = tmp_path_factory.mktemp("head")
    save_eagle3(Eagle3Head(tiny_eagle3_config(vocab_size=PRINTABLE_VOCAB_SIZE, max_position_embeddings=512)), head)
    settings = (
        f"target.model={folder}",
        "target.tensor_parallel_size=2",
        "target.drafter.proposer=eagle3",
        f"target.drafter.model={head}",
        "target.engine.dtype=float32",
        "target.engine.num_threads=1",
        "target.engine.kv_cache_tokens=2048",
        f"orchestrator.http.port={free_ports(1)[0]}",
    )
    return start_up("--ray", *(part for setting in settings for part in ("--set", setting)))


@pytest.fixture(scope="module")
def ask(up) -> Iterator[Callable[..., Iterator[Chunk | Summary]]]:
    """An answer of 400 tokens, with speculation on or off."""

    def ask(speculation: str, proposer: str = "draft") -> Iterator[Chunk | Summary]:
        options = GenerateOptions(
            max_tokens=400, temperature=0, ignore_eos=True, speculation=speculation, proposer=proposer
        )
        return client.generate("The small fish swims ahead of the shark.", options, timeout_s=120.0)

    with InferenceClient(up.address) as client:
        yield ask


def token_ids(messages) -> list[int]:
    return [token_id for message in messages if isinstance(message, Chunk) for token_id in message.token_ids]


@pytest.fixture(scope="module")
def expected(ask) -> list[int]:
    return token_ids(ask("off"))


def test_the_services_become_ready_and_speculate(up, ask, expected: list[int]) -> None:
    *chunks, summary = ask("on")
    assert summary.speculation.num_rounds > 0
    assert token_ids(chunks) == expected
    assert len(expected) == 400
    for service in ("target_service", "draft_service", "orchestrator"):
        assert sum(f"{service} ready on" in line for line in up.lines) == 1


def test_a_head_drafts_in_the_ranks(ask, expected: list[int]) -> None:
    *chunks, summary = ask("on", "eagle3")
    assert summary.speculation.num_draft_tokens > 0
    assert token_ids(chunks) == expected


def test_requests_outlive_the_draft_replica(up, ask, expected: list[int]) -> None:
    up.descendant("ServeReplica:pilotfish:draft").kill()
    assert token_ids(ask("on")) == expected


def test_a_request_outlives_the_rank_that_computed_it(up, ask, expected: list[int]) -> None:
    """The whole target replica ends with it, and is replaced; the request waits for it."""
    rank = up.descendant(RANK)
    assert rank.nice() == psutil.Process().nice(), "Ray would have it behind everything else on the machine"
    answer = ask("off")
    begun = token_ids([next(answer)])
    os.kill(rank.pid, signal.SIGKILL)
    assert begun + token_ids(answer) == expected
    up.wait_for_descendant(RANK)
    assert up.descendant(RANK).pid != rank.pid


def test_ctrl_c_leaves_no_process(up) -> None:
    assert up.address
    assert up.descendants()
    assert up.stop(signal.SIGINT) == 0
    assert up.lines[-1] == "stopped"
    assert not up.left()
