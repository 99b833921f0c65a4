"""A real vLLM whose drafts come from a real draft service. Large, so that it runs where it is asked for:

    PILOTFISH_TEST_VLLM=/path/to/vllm/bin/python pytest tests/integration/vllm

benchmarks/peers/setup.sh vllm makes such an environment.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.shared.peer_process import Batch, PeerProcess
from pilotfish.chat import ChatMessage
from pilotfish.config import Config, environment, load_config
from pilotfish.errors import UnavailableError
from pilotfish.models.store.catalogue import resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.service_process import ServiceProcess

ROOT = Path(__file__).parents[3]
VLLM = os.environ.get("PILOTFISH_TEST_VLLM", "")
MAX_TOKENS = 48
PROMPTS = (
    "Repeat this sentence three times: The quick brown fox jumps over the lazy dog.",
    "Count from one to twenty in words.",
    "What is the capital of France?",
    "Write the word fish ten times.",
)

pytestmark = [
    pytest.mark.skipif(not VLLM, reason="PILOTFISH_TEST_VLLM names the Python of an environment with vLLM"),
    pytest.mark.model,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def model() -> Path:
    config: Config = load_config()
    folder = cached_folder(resolve(config.target.model), ModelCache(Path(config.cache_dir)))
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def prompts(model: Path) -> list[tuple[int, ...]]:
    tokenizer = Tokenizer.load(model)
    return [tokenizer.apply_chat_template((ChatMessage("user", each),)) for each in PROMPTS]


@pytest.fixture(scope="module")
def draft() -> Iterator[ServiceProcess]:
    settings = ["--set", "draft.proposer=suffix", "--set", "draft.suffix_shared_tokens=0"]
    with ServiceProcess("draft_service", settings) as process:
        yield process


@pytest.fixture(scope="module")
def start(model: Path) -> Callable[..., PeerProcess]:
    def make(mode: str, /, **pilotfish: object) -> PeerProcess:
        argv = [VLLM, str(ROOT / "benchmarks/peers/run_vllm.py"), "--model", str(model), "--mode", mode, "--eager"]
        argv += ["--threads", str(len(os.sched_getaffinity(0))), "--context", "1024", "--max-num-seqs", "4"]
        argv += ["--pilotfish", json.dumps(pilotfish)]
        variables = environment({"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"})
        return PeerProcess(f"vllm {mode}", argv, variables)

    return make


def ask(vllm: PeerProcess, prompts: Sequence[Sequence[int]], concurrency: int = 1) -> Batch:
    return vllm.ask(prompts, max_tokens=MAX_TOKENS, concurrency=concurrency)


@pytest.fixture(scope="module")
def plain(start, prompts) -> dict[int, Batch]:
    """What vLLM says by itself, by requests in flight."""
    with start("plain") as vllm:
        return {n: ask(vllm, prompts, n) for n in (1, 4)}


def test_vllm_says_the_same_with_drafts_and_without_and_after_they_end(start, prompts, plain, draft) -> None:
    with start("remote", draft_addresses=[draft.address]) as vllm:
        # The first prompts may find the connection not made yet.
        ask(vllm, prompts[:1])
        alone = ask(vllm, prompts)
        together = ask(vllm, prompts, 4)
        assert alone.counters["num_faults"] == 0
        assert alone.counters["num_accepted_tokens"] > 20
        assert together.counters["num_accepted_tokens"] > alone.counters["num_accepted_tokens"]
        draft.kill()
        after = ask(vllm, prompts)
        assert all(map(len, after.token_ids))
        draft.start()
        draft.wait_listening()
    assert after.token_ids == plain[1].token_ids
    # Rows of a verification are computed in other shapes than those of a step: near ties may fall differently.
    equal = sum(own == theirs for own, theirs in zip(alone.token_ids, plain[1].token_ids, strict=True))
    assert equal >= len(prompts) - 1
    assert [answer[:8] for answer in together.token_ids] == [answer[:8] for answer in plain[4].token_ids]


def test_vllm_starts_without_a_draft_service(start, prompts, plain) -> None:
    with start("remote", draft_addresses=["127.0.0.1:1"]) as vllm:
        assert ask(vllm, prompts).token_ids == plain[1].token_ids


def test_wrong_settings_stop_the_start_with_their_name(start) -> None:
    with pytest.raises(UnavailableError, match="no_such_setting"), start("remote", no_such_setting=1):
        pass


def test_the_client_imports_in_vllms_environment_what_vllm_has() -> None:
    script = (
        "import sys; import pilotfish.integrations.vllm; "
        "print([name for name in ('torch', 'ray', 'transformers', 'vllm') if name in sys.modules])"
    )
    done = subprocess.run(
        [VLLM, "-c", script], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
