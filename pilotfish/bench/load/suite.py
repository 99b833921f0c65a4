"""Whole load tests: every mode at every load, in turns, against one orchestrator."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import uvloop

from pilotfish.bench.load.driver import Ask, Driver, Window
from pilotfish.bench.load.point import LoadResult, points_of
from pilotfish.bench.load.workload import (
    Lengths,
    ListedPrompts,
    PlannedRequest,
    Prompts,
    SyntheticPrompts,
    Workload,
    parse_lengths,
)
from pilotfish.bench.machine import this_machine
from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.result import common_conditions
from pilotfish.bench.suite import Station, SuiteProgress, require_proposer, started_info, station_address
from pilotfish.client.answer import GenerateOptions, ServiceInfo, Summary
from pilotfish.client.async_inference import AsyncInferenceClient, OnTokens
from pilotfish.client.inference import InferenceClient
from pilotfish.errors import ConfigError

MODES = ("off", "on", "auto")
"""Modes of speculation, as requests ask for them."""
_DEFAULT_LENGTHS = parse_lengths("128")


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The loads, the modes that are held against each other at each of them, and the requests."""

    concurrencies: tuple[int, ...]
    """Requests in flight: clients, each of whom asks again when it has its answer."""
    modes: tuple[str, ...] = ("auto",)
    options: GenerateOptions
    """Sampling and speculation, the same for all modes but for `speculation`."""
    prompts: Sequence[str] = ()
    """Texts; empty: synthetic prompts."""
    prompt_lengths: Lengths = _DEFAULT_LENGTHS
    """Lengths of synthetic prompts."""
    output_lengths: Lengths = _DEFAULT_LENGTHS
    num_requests: int | None = None
    """Measured requests of a run; None: by the load."""
    num_turns: int = 1
    """Runs of each mode at each load."""
    seed: int = 0
    """Seed of lengths, prompts and sampling."""
    timeout_s: float
    """Time limit of one request."""

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown or not self.modes or len(set(self.modes)) < len(self.modes):
            raise ConfigError(f"modes {','.join(self.modes)!r}: name some of {', '.join(MODES)}, each once")
        if not self.concurrencies or min(self.concurrencies) < 1:
            raise ConfigError("concurrency must be 1 or more requests in flight, such as 1,4,16")

    @property
    def baseline(self) -> str:
        """The mode that ratios are over: plain decoding where it runs."""
        return "off" if "off" in self.modes else self.modes[0]

    def requests(self, concurrency: int) -> int:
        """Measured requests of a run: enough for the median; percentiles beyond it want more."""
        return self.num_requests or max(16, 4 * concurrency)


NUM_CHANNELS = 4
"""TCP connections of the client: what one carries in a moment waits for the same flow-control window."""


def run_load(station: Station, settings: LoadSettings, progress: SuiteProgress | None = None) -> LoadResult:
    """Start or find the services, load them, and sum up.

    Requests that fail are counted, not raised. Raises PilotfishError for what keeps it from running at all.
    """
    progress = progress or SuiteProgress()
    num_measured = sum(map(settings.requests, settings.concurrencies))
    progress.begin(num_measured * settings.num_turns * len(settings.modes))
    progress.doing("starting the services" if station.config else f"connecting to {station.address}")
    with station_address(station, progress) as address:
        with InferenceClient(address, access=station.access) as client:
            info = started_info(client, station.config)
            workload = _workload(client, info, settings)
        # One loop for all runs: channels belong to it.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            windows = runner.run(_run_all(address, station, workload, settings, progress))
    return LoadResult(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=this_machine(),
        conditions=_conditions(info, settings, is_repeating=_is_repeating(station)),
        baseline=settings.baseline,
        points=points_of(windows, settings.baseline, with_texts=info.deterministic and _is_repeating(station)),
    )


def _is_repeating(station: Station) -> bool:
    """Whether every run gets the same prompts. A service that caches prefixes must not: the first run would pay for
    all of them."""
    return station.config is not None and not station.config.target.engine.prefix_caching


async def _run_all(
    address: str, station: Station, workload: Workload, settings: LoadSettings, progress: SuiteProgress
) -> dict[tuple[int, str], list[Window]]:
    windows: dict[tuple[int, str], list[Window]] = {
        (concurrency, mode): [] for concurrency in settings.concurrencies for mode in settings.modes
    }
    is_repeating = _is_repeating(station)
    async with AsyncInferenceClient(address, access=station.access, num_channels=NUM_CHANNELS) as client:
        for concurrency in settings.concurrencies:
            for turn in range(settings.num_turns):
                first = turn % len(settings.modes)
                for mode in (*settings.modes[first:], *settings.modes[:first]):
                    progress.doing(f"{mode}, {concurrency} in flight")
                    driver = Driver(
                        _asker(client, settings, mode),
                        concurrency=concurrency,
                        num_measured=settings.requests(concurrency),
                        on_measured=progress.advance,
                    )
                    salt = "" if is_repeating else f"{concurrency} {mode} {turn}"
                    windows[concurrency, mode].append(await driver.run(workload.requests(salt)))
    return windows


def _asker(client: AsyncInferenceClient, settings: LoadSettings, mode: str) -> Ask:
    common = dataclasses.replace(settings.options, speculation=mode)
    if mode == "off":
        common = dataclasses.replace(common, num_speculative_tokens=None)

    def ask(request: PlannedRequest, on_tokens: OnTokens) -> Awaitable[Summary]:
        options = dataclasses.replace(common, max_tokens=request.max_tokens, seed=request.seed)
        return client.follow(request.prompt, options, timeout_s=settings.timeout_s, on_tokens=on_tokens)

    return ask


def _workload(client: InferenceClient, info: ServiceInfo, settings: LoadSettings) -> Workload:
    """Raises ConfigError for requests that what serves there cannot answer."""
    if settings.options.proposer:
        require_proposer(info, settings.options.proposer)
    num_tokens = settings.output_lengths.smallest + (0 if settings.prompts else settings.prompt_lengths.smallest)
    if num_tokens > info.max_context_tokens:
        raise ConfigError(
            f"prompts and answers have at least {num_tokens} tokens together; {info.model_id} takes "
            f"{info.max_context_tokens}"
        )
    prompts: Prompts
    if settings.prompts:
        prompts = ListedPrompts(settings.prompts)
    else:
        corpus = client.tokenize("\n".join(prompt.text for prompt in load_prompts()))
        prompts = SyntheticPrompts(corpus, settings.prompt_lengths)
    return Workload(
        prompts=prompts,
        output_lengths=settings.output_lengths,
        seed=settings.seed,
        max_context_tokens=info.max_context_tokens,
    )


def _conditions(
    info: ServiceInfo, settings: LoadSettings, *, is_repeating: bool
) -> dict[str, str | int | float | bool]:
    options = settings.options
    return {
        **common_conditions(info, options),
        "target replicas": info.num_target_replicas,
        "draft replicas": info.num_draft_replicas,
        "prompts": f"{len(settings.prompts)} given" if settings.prompts else "synthetic",
        "prompt tokens": "as given" if settings.prompts else str(settings.prompt_lengths),
        "output tokens": str(settings.output_lengths),
        "proposer": options.proposer or "the server's",
        "draft tokens": options.num_speculative_tokens or "the server's",
        "turns": settings.num_turns,
        "seed": settings.seed,
        "prompts of each run": "the same, nothing is cached" if is_repeating else "other ones",
    }
