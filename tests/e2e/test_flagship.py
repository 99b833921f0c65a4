"""examples/flagship: ranks and a draft pool as they are deployed, with every process killed in turn."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pilotfish.client.answer import Chunk, GenerateOptions, Summary
from pilotfish.client.inference import InferenceClient
from pilotfish.errors import DeadlineExceededError, UnavailableError
from pilotfish.launch.specs import free_ports
from tests.e2e.conftest import START_TIMEOUT_S, WatchedProcess
from tests.support.loop_thread import LoopThread
from tests.support.otlp_collector import OtlpCollector

pytestmark = [pytest.mark.model, pytest.mark.ray, pytest.mark.timeout(2400)]

FOLDER = Path(__file__).parents[2] / "examples" / "flagship"
NUM_TOKENS = 60
STOP_TIMEOUT_S = 120.0
"""Ray gives what runs on a node 30 s to end."""
PROCESSES = {
    "processes.sh": ("parallel.rank", "--role target", "-m target_service", "--role draft", "-m draft_service"),
    "ray.sh": (
        "parallel.rank",
        "--role target",
        "ServeReplica:pilotfish-target",
        "--role draft",
        "ServeReplica:pilotfish-draft",
    ),
}
"""By script: a part of the command line of each process whose death a request must outlive."""


@dataclass
class Flagship:
    """Running services."""

    script: str
    process: WatchedProcess
    client: InferenceClient
    collector: OtlpCollector
    dashboard: int
    """Port of Ray's, where there is Ray."""

    def answer(self, speculation: str) -> Iterator[Chunk | Summary]:
        options = GenerateOptions(
            max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True, speculation=speculation, proposer="draft"
        )
        return self.client.generate("Tell me about the sea.", options, timeout_s=START_TIMEOUT_S)

    def kill(self, part: str) -> int:
        """One process whose command line holds `part`."""
        found = [each for each in self.process.descendants() if part in " ".join(each.cmdline())]
        assert found, f"no process {part!r}"
        os.kill(found[0].pid, signal.SIGKILL)
        return found[0].pid


async def started_collector() -> OtlpCollector:
    return await OtlpCollector().__aenter__()


@pytest.fixture(scope="module", params=sorted(PROCESSES))
def flagship(request: pytest.FixtureRequest, default_model: Path) -> Iterator[Flagship]:
    target, draft, api, http, ray, dashboard = free_ports(6)
    loop = LoopThread()
    collector = loop.run(started_collector())
    settings = (
        f"target.port={target}",
        f"draft.port={draft}",
        f"orchestrator.port={api}",
        f"orchestrator.http.port={http}",
        f"orchestrator.connect_timeout_s={START_TIMEOUT_S}",
        f"telemetry.otlp_endpoint={collector.endpoint}",
    )
    names = (
        f'orchestrator.target_addresses=["dns:///localhost:{target}"]',
        f'orchestrator.draft_addresses=["dns:///localhost:{draft}"]',
    )
    if request.param == "processes.sh":
        settings += names
    environment = {"VENV": sys.prefix, "RAY_PORT": str(ray), "DASHBOARD_PORT": str(dashboard)}
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), str(FOLDER / request.param)]
    process = WatchedProcess(*command, *(part for setting in settings for part in ("--set", setting)))
    try:
        with InferenceClient(f"127.0.0.1:{api}", connect_timeout_s=START_TIMEOUT_S) as client:
            yield Flagship(request.param, process, client, collector, dashboard)
    finally:
        if process.process.poll() is None:
            process.stop(signal.SIGTERM, STOP_TIMEOUT_S)
        loop.run(collector.__aexit__())
        loop.close()


def token_ids(messages: Iterator[Chunk | Summary]) -> list[int]:
    return [token_id for message in messages if isinstance(message, Chunk) for token_id in message.token_ids]


@pytest.fixture(scope="module")
def expected(flagship: Flagship) -> list[int]:
    try:
        return token_ids(flagship.answer("off"))
    except DeadlineExceededError:
        # Pytest shows it: what Serve knows of a replica that does not come up stands nowhere else.
        command = [f"{sys.prefix}/bin/serve", "status", "--address", f"http://127.0.0.1:{flagship.dashboard}"]
        subprocess.run(command, check=False, timeout=60)
        raise


def test_the_head_in_the_pool_drafts_for_the_ranks(flagship: Flagship, expected: list[int]) -> None:
    *chunks, summary = flagship.answer("on")
    assert isinstance(summary, Summary)
    assert summary.speculation.num_accepted_tokens > 0
    assert token_ids(iter(chunks)) == expected
    assert len(expected) == NUM_TOKENS


def test_one_trace_spans_the_services(flagship: Flagship, expected: list[int]) -> None:
    """They export every few seconds."""
    nothing = threading.Event()
    while True:
        found = {(span.trace_id, span.name) for span in tuple(flagship.collector.spans)}
        traces = [
            {trace for trace, name in found if name == wanted} for wanted in ("target sequence", "draft sequence")
        ]
        if set.intersection(*traces):
            break
        nothing.wait(0.2)
    assert expected


def test_a_request_outlives_every_process_of_the_pools(flagship: Flagship, expected: list[int]) -> None:
    for part in PROCESSES[flagship.script]:
        answer = flagship.answer("on")
        begun = token_ids(iter([next(answer)]))
        pid = flagship.kill(part)
        assert begun + token_ids(answer) == expected, f"{part} {pid} was killed"
        flagship.process.wait_for_descendant(part)


def test_a_killed_orchestrator_is_replaced(flagship: Flagship, expected: list[int]) -> None:
    flagship.kill("-m orchestrator" if flagship.script == "processes.sh" else "ServeReplica:pilotfish:orchestrator")
    while True:
        try:
            assert token_ids(flagship.answer("on")) == expected
            return
        except UnavailableError:
            threading.Event().wait(0.2)


def test_a_signal_leaves_no_process(flagship: Flagship) -> None:
    assert flagship.process.descendants()
    flagship.process.stop(signal.SIGTERM, STOP_TIMEOUT_S)
    assert not flagship.process.left()
