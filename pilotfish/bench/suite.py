"""Whole benchmarks: one running orchestrator, or a stack of our own for each configuration, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pilotfish.bench.arms import PilotfishArm, Variant
from pilotfish.bench.prompts import Prompt
from pilotfish.bench.proposers import Proposer
from pilotfish.bench.quality import Quality, quality_of
from pilotfish.bench.runner import Sample, TokenisedPrompt, run_arms
from pilotfish.chat import ChatMessage
from pilotfish.client.access import OPEN_ACCESS, Access
from pilotfish.client.answer import GenerateOptions, ServiceInfo
from pilotfish.client.inference import InferenceClient
from pilotfish.config import Config
from pilotfish.drafter_registry import IN_TARGET_DRAFTERS
from pilotfish.errors import ConfigError, UnavailableError
from pilotfish.launch.local_stack import LocalStack
from pilotfish.types import AcceptanceMode

STACK_DEFAULTS = (
    "target.engine.prefix_caching=false",
    "draft.engine.prefix_caching=false",
    "draft.suffix_shared_tokens=0",
    "orchestrator.speculation.allow_lossy=true",
)
"""Every answer pays for its own prompt and knows nothing of the others: all arms get the same prompts in turn, so
that caches would show what the first one cost and the next ones would draft its answer. Lossy acceptance is there to
be measured."""

STEP_DEFAULTS = ("target.engine.prefix_caching=true", "draft.engine.prefix_caching=true")
"""Steps of reasoning live on the caches; each answer still has one of its own."""

DRAFT_LINK_TIMEOUT_S = 30.0
DRAFT_LINK_PAUSE_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is asked of every arm."""

    lengths: tuple[int, ...]
    """Draft tokens per round, an arm for each."""
    with_auto: bool
    """One more arm for each proposer whose length the controller chooses."""
    max_tokens: int
    num_repeats: int = 1
    options: GenerateOptions
    """Sampling, the same for all arms."""
    lossy: tuple[str, ...] = ()
    """`typical`, `tolerance`, `step`: one more arm for each beside every exact one."""
    timeout_s: float
    """Time limit of one answer."""

    def __post_init__(self) -> None:
        if not self.lengths and not self.with_auto:
            raise ConfigError("nothing to run: name draft lengths, or let the controller choose (auto)")
        if any(length < 1 for length in self.lengths):
            raise ConfigError(f"draft lengths must be at least 1, not {min(self.lengths)}")

    def keeps_text(self, info: ServiceInfo) -> bool:
        """Whether exact arms must answer as plain decoding does, token by token.

        Rejection sampling keeps the distribution, not the text; without `deterministic` near ties fall either way.
        """
        return info.deterministic and (
            self.options.acceptance is AcceptanceMode.COUPLED or self.options.temperature == 0
        )

    def variants(self, proposers: Sequence[Proposer]) -> list[Variant]:
        """The speculative ones."""
        lengths = (*self.lengths, *((None,) if self.with_auto else ()))
        kinds = ("", *self.lossy)
        return [Variant(proposer.name, length, kind) for proposer in proposers for length in lengths for kind in kinds]


@dataclass(frozen=True, kw_only=True)
class Station:
    """One orchestrator, and the proposers to try there."""

    proposers: Sequence[Proposer]
    config: Config | None = None
    """Configuration of a stack to start; None: one runs already, at `address`."""
    address: str = ""
    """Address of an orchestrator that runs already; empty: a stack is started."""

    @property
    def access(self) -> Access:
        """Our own stacks ask for nothing."""
        return OPEN_ACCESS if self.config is not None else Access.from_environment()


@dataclass
class Run:
    """What a suite measured."""

    samples: list[Sample] = field(default_factory=list)
    infos: list[ServiceInfo] = field(default_factory=list)
    """What each station served."""
    variants: dict[str, Variant] = field(default_factory=dict)
    """Our own arms by name."""
    qualities: dict[str, Quality] = field(default_factory=dict)
    """Qualities of our own arms, where texts may differ."""


class SuiteProgress:
    """Hears how a suite gets on; this one does not care."""

    def begin(self, num_answers: int) -> None:
        """A suite begins that measures so many answers."""

    def doing(self, what: str) -> None:
        """What it is busy with from now on."""

    def advance(self) -> None:
        """One answer is there."""

    def line(self, service: str, line: str) -> None:
        """A service of a stack of our own printed a line. Called on another thread."""


def stations_of(proposers: Sequence[Proposer], configure: Callable[[Sequence[str]], Config]) -> list[Station]:
    """A station for each configuration that the proposers need; configure makes one from overrides."""
    groups: dict[tuple[str, ...], list[Proposer]] = {}
    for proposer in proposers:
        groups.setdefault(proposer.overrides, []).append(proposer)
    return [Station(proposers=group, config=configure(overrides)) for overrides, group in groups.items()]


def run_stations(
    stations: Sequence[Station],
    prompts: Sequence[Prompt],
    settings: Settings,
    *,
    progress: SuiteProgress | None = None,
) -> Run:
    """Measure every station's variants against plain decoding there.

    Raises PilotfishError for what cannot be had, where possible before anything is measured.
    """
    progress = progress or SuiteProgress()
    run = Run()
    num_arms = sum(1 + len(settings.variants(station.proposers)) for station in stations)
    progress.begin(num_arms * len(prompts) * settings.num_repeats)
    for index, station in enumerate(stations):
        progress.doing("starting the services" if station.config else f"connecting to {station.address}")
        with station_address(station, progress) as address, InferenceClient(address, access=station.access) as client:
            info = started_info(client, station.config)
            _check(info, station, settings)
            tokenised = [TokenisedPrompt(prompt, _tokenise(client, info, prompt)) for prompt in prompts]
            arms = _arms(client, station, settings)
            run.infos.append(info)
            run.variants.update({arm.name: arm.variant for arm in arms})
            progress.doing(", ".join(proposer.name for proposer in station.proposers))
            run.samples += run_arms(
                arms,
                tokenised,
                max_tokens=settings.max_tokens,
                turns=range(index * settings.num_repeats, (index + 1) * settings.num_repeats),
                on_answer=progress.advance,
            )
            # An emulated target has no opinion.
            if not info.emulated and (settings.lossy or not settings.keeps_text(info)):
                progress.doing("asking the target what it thinks of the answers")
                run.qualities.update(_qualities(arms, tokenised, settings.max_tokens))
    return run


@contextmanager
def station_address(station: Station, progress: SuiteProgress) -> Iterator[str]:
    """Where its orchestrator answers, for as long as the block lasts. Raises UnavailableError."""
    if station.config is None:
        yield station.address
    else:
        with LocalStack(station.config, on_line=progress.line) as stack:
            yield stack.address


def _arms(client: InferenceClient, station: Station, settings: Settings) -> list[PilotfishArm]:
    """Plain decoding first."""
    request_names: Mapping[str, str] = {proposer.name: proposer.request_name for proposer in station.proposers}
    return [
        PilotfishArm(
            client,
            variant,
            request_proposer=request_names.get(variant.proposer, ""),
            common=settings.options,
            timeout_s=settings.timeout_s,
        )
        for variant in (Variant(), *settings.variants(station.proposers))
    ]


def _qualities(arms: Sequence[PilotfishArm], prompts: Sequence[TokenisedPrompt], max_tokens: int) -> dict[str, Quality]:
    """Qualities of answers apart from those that were measured: log-probabilities take time."""
    qualities = {}
    for arm in arms:
        answers = [arm.answer(prompt.token_ids, max_tokens=max_tokens, num_logprobs=1) for prompt in prompts]
        quality = quality_of((answer.token_ids, answer.logprobs) for answer in answers)
        if quality is not None:
            qualities[arm.name] = quality
    return qualities


def started_info(client: InferenceClient, config: Config | None) -> ServiceInfo:
    """What serves there. config: of a stack that has just started, whose orchestrator may still be dialling the draft
    service; None: it has run before."""
    deadline_s = time.monotonic() + DRAFT_LINK_TIMEOUT_S
    while True:
        info = client.info()
        if info.num_draft_replicas or config is None or not config.draft.num_replicas:
            return info
        if time.monotonic() > deadline_s:
            return info
        time.sleep(DRAFT_LINK_PAUSE_S)


def has_proposer(info: ServiceInfo, name: str) -> bool:
    """Whether a request that asks for it would get drafts."""
    if name == "draft":
        return info.num_draft_replicas > 0
    if name == "auto":
        return bool(info.drafter) or info.num_draft_replicas > 0
    return name == info.drafter if name in IN_TARGET_DRAFTERS else name in info.proposers


def require_proposer(info: ServiceInfo, name: str) -> None:
    """Raises ConfigError where a request that asks for it would get no drafts."""
    if not has_proposer(info, name):
        there = ", ".join(each for each in info.proposers if has_proposer(info, each))
        raise ConfigError(f"what serves there has no proposer {name}; it has {there or 'none'}")


def _check(info: ServiceInfo, station: Station, settings: Settings) -> None:
    """Raise for what the services there cannot do."""
    for proposer in station.proposers:
        if proposer.request_name == "draft" and not info.num_draft_replicas:
            raise UnavailableError("no draft replica is connected: start one, or choose a proposer that needs none")
        require_proposer(info, proposer.request_name)
    longest = max(settings.lengths, default=0)
    if longest > info.max_draft_tokens:
        raise ConfigError(
            f"{longest} draft tokens are more than the target takes in a round ({info.max_draft_tokens}): choose "
            "fewer, or raise target.engine.max_draft_tokens"
        )


def _tokenise(client: InferenceClient, info: ServiceInfo, prompt: Prompt) -> tuple[int, ...]:
    token_ids = client.tokenize((ChatMessage("user", prompt.text),))
    if len(token_ids) >= info.max_context_tokens:
        start = " ".join(prompt.text.split())[:60]
        raise ConfigError(
            f"the prompt {start!r}... has {len(token_ids)} tokens; {info.model_id} takes {info.max_context_tokens}"
        )
    return token_ids
