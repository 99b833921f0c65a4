"""The services in this process, over emulated engines that take no time, and a collector that gets what they tell."""

import asyncio
import contextlib
import dataclasses
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from pilotfish.config.config import Config
from pilotfish.config.draft import DraftConfig
from pilotfish.config.emulation import EmulationConfig
from pilotfish.config.orchestrator import OrchestratorConfig
from pilotfish.config.speculation import SpeculationConfig
from pilotfish.config.target import TargetConfig
from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.otlp_collector import OtlpCollector
from tests.support.stack import Stack, running_stack

CONFIG = Config(
    emulation=EmulationConfig(profile="instant", acceptance=0.7),
    target=TargetConfig(model="nobody/has-this", metrics_port=0),  # a tokenizer made here is soon loaded
    draft=DraftConfig(metrics_port=0),
    # Whether a draft comes in time is another matter.
    orchestrator=OrchestratorConfig(speculation=SpeculationConfig(allow_lossy=True, draft_deadline_ms=10_000)),
)


@contextlib.asynccontextmanager
async def observed_stack(telemetry: TelemetryConfig) -> AsyncIterator[Stack]:
    """Its spans are on their way to the collector once the block has ended."""
    async with running_stack(dataclasses.replace(CONFIG, telemetry=telemetry)) as stack:
        yield stack


@dataclass(frozen=True)
class Scrapes:
    """What a scraper reads, as text, and what was asked between the first and the others."""

    target_address: str
    plain: pb.Summary
    drafted: pb.Summary
    before: str
    """Of the orchestrator, as `after`."""
    after: str
    target: str
    draft: str
    openmetrics: str
    openmetrics_type: str


def read(url: str, accept: str) -> tuple[str, str]:
    """(body, content type)."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as response:
        return response.read().decode(), response.headers["content-type"]


async def scrape(url: str, accept: str = "text/plain") -> str:
    """/metrics at a base URL."""
    body, _ = await asyncio.to_thread(read, f"{url}/metrics", accept)
    return body


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scrapes() -> Scrapes:
    """One plain answer, one with drafts, one request that is refused."""
    async with observed_stack(TelemetryConfig()) as stack:
        url = stack.orchestrator.http_url
        before = await scrape(url)
        plain = (await stack.ask(speculation={"mode": pb.SPECULATION_MODE_OFF})).summary
        drafted = (await stack.ask(seed=4, speculation={"mode": pb.SPECULATION_MODE_ON})).summary
        with pytest.raises(grpc.aio.AioRpcError):
            await stack.ask(stop_token_ids=[2**31])
        text, content_type = await asyncio.to_thread(
            read, f"{url}/metrics", "application/openmetrics-text; version=1.0.0"
        )
        return Scrapes(
            target_address=stack.target.address,
            plain=plain,
            drafted=drafted,
            before=before,
            after=await scrape(url),
            target=await scrape(f"http://{stack.target._metrics.address}"),
            draft=await scrape(f"http://{stack.draft._metrics.address}"),
            openmetrics=text,
            openmetrics_type=content_type,
        )


@pytest.fixture
async def collector() -> AsyncIterator[OtlpCollector]:
    async with OtlpCollector() as found:
        yield found


@pytest.fixture(scope="session")
def run_stack() -> Any:
    return observed_stack


@pytest.fixture(scope="session")
def scrape_text() -> Any:
    return scrape
