"""A running service, asked for its target's own answers, and for what it measured of its drafts. Torch-free."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pilotfish.bench.measurement import Measurement
from pilotfish.bench.metrics import draft_metrics
from pilotfish.bench.prompts import Prompt
from pilotfish.chat import ChatMessage
from pilotfish.client.access import Access
from pilotfish.client.answer import GenerateOptions, ServiceInfo, Summary, TokenPrompt
from pilotfish.client.inference import InferenceClient
from pilotfish.config import Config, TargetConfig
from pilotfish.errors import ConfigError, InvalidRequestError, ModelNotFoundError
from pilotfish.examine.service.fleet import Fleet, read_fleet
from pilotfish.models.store.catalogue import GgufFile, merged_id, resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder

_TIMEOUT_S = 600.0
"""For an answer."""
_MIN_TIMED_TOKENS = 2


class ServiceMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """What a service made of the prompts, one request at a time, and what it knows of all of its requests."""

    address: str
    version: str
    """Pilotfish's."""
    dtype: str
    proposers: tuple[str, ...]
    num_answers: int
    """With drafts as the service chooses them."""
    acceptance: tuple[float, ...]
    """Share of draft tokens accepted at each place, of those whose predecessors were, weighted by answers' rounds.
    Empty: nothing was drafted."""
    tokens_per_round: float | None
    """1 + accepted tokens over rounds with a draft; None: there were none."""
    num_draft_tokens: int
    tokens_per_s: float
    """Output tokens after each answer's first, over the time after it."""
    plain_tokens_per_s: float
    """The same of the same greedy prompts without drafts."""
    speed_up: float | None
    """Ratio of greedy answers with drafts to those without; None: answers are too short."""
    reasons: dict[str, int]
    """Answers by why drafts were off or limited for them, as the service says it."""
    fleet: Fleet | None
    """What its controller knows; None: see fleet_problem."""
    fleet_problem: str = ""
    same_choices: float | None = None
    """Share of the greedy answers' tokens that the target here would have chosen as well; None: nobody looked."""
    target_missing: bool = False
    """Whether the target's weights are not on this machine: nothing was predicted."""


@dataclass(frozen=True)
class ServiceAnswer:
    """A prompt and the answer to it, as tokens."""

    category: str
    temperature: float
    seed: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class AskedService:
    """A service that has answered."""

    model: str
    """As the service calls it."""
    answers: Sequence[ServiceAnswer]
    measured: ServiceMeasured


OnAnswer = Callable[[int, int], None]
"""Called with the answers that there are, and how many there will be."""


def served_config(config: Config, info: ServiceInfo) -> Config:
    """The configuration with the model that is served. Raises ConfigError for an emulated one, and where the
    configuration names another."""
    if info.emulated:
        raise ConfigError(f"{info.model_id} is emulated there: its answers are made up, and drafts say nothing of them")
    if not info.model_id or not info.num_target_replicas:
        raise ConfigError("no target is connected to that service: see its /fleet, or `pilotfish health`")
    target = config.target
    if info.model_id in (target.model, _name_of(target)):
        return config
    if target.model != TargetConfig.model or target.lora:
        raise ConfigError(
            f"the service runs {info.model_id}, and target.model is {target.model}: name the folder or hub id of what "
            "it runs (--set target.model=...), or the address of one that runs yours"
        )
    return dataclasses.replace(config, target=dataclasses.replace(target, model=info.model_id))


def _name_of(target: TargetConfig) -> str:
    """What a service calls it, wherever it is."""
    try:
        return merged_id(target.model, target.lora)
    except ModelNotFoundError:  # a folder of the service's machine
        return Path(target.model).name


def has_weights(config: Config) -> bool:
    """Whether the target's weights are on this machine, an adapter's included. Uses no network."""
    cache = ModelCache(Path(config.cache_dir).expanduser())
    try:
        sources = [resolve(name) for name in (config.target.model, config.target.lora) if name]
    except ModelNotFoundError:
        return False
    return all(isinstance(source, GgufFile) or cached_folder(source, cache) is not None for source in sources)


def ask_service(
    address: str,
    access: Access,
    config: Config,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    temperature: float,
    on_answer: OnAnswer = lambda *_: None,
) -> tuple[Config, AskedService]:
    """Ask every prompt greedily, plainly as well, and at the temperature, one request at a time. The configuration is
    that of `served_config`.

    Raises UnavailableError where nobody listens, AuthenticationError for a wrong key, and ConfigError.
    """
    with InferenceClient(address, access=access) as client:
        info = client.info()
        config = served_config(config, info)
        num_kinds = 3 if temperature else 2
        asked: list[tuple[ServiceAnswer, Summary, bool]] = []
        for seed, prompt in enumerate(prompts):
            prompt_ids = _prompt_ids(client, prompt.text)
            for heat, is_plain in ((0.0, False), (0.0, True), (temperature, False))[:num_kinds]:
                token_ids, summary = _ask(client, prompt_ids, max_tokens, heat, seed, is_plain=is_plain)
                answer = ServiceAnswer(prompt.category, heat, seed, prompt_ids, token_ids)
                asked.append((answer, summary, is_plain))
                on_answer(len(asked), num_kinds * len(prompts))
    fleet, problem = read_fleet(address, config.orchestrator.http_port, access)
    drafted = [(answer, summary) for answer, summary, is_plain in asked if not is_plain]
    # All greedy ones before the sampled ones, as an examination without a service has them.
    answers = sorted((answer for answer, _ in drafted), key=lambda answer: answer.temperature > 0)
    return config, AskedService(info.model_id, answers, _measured(address, info, asked, fleet, problem))


def _prompt_ids(client: InferenceClient, text: str) -> tuple[int, ...]:
    """As a chat where the model has a template."""
    try:
        return client.tokenize((ChatMessage("user", text),))
    except InvalidRequestError:
        return client.tokenize(text)


def _ask(
    client: InferenceClient,
    prompt_ids: tuple[int, ...],
    max_tokens: int,
    temperature: float,
    seed: int,
    *,
    is_plain: bool,
) -> tuple[tuple[int, ...], Summary]:
    options = GenerateOptions(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        speculation="off" if is_plain else "",
        learn=False,
        cache_salt=uuid.uuid4().hex,  # a lookup would find the same prompt's earlier answer
    )
    token_ids: list[int] = []
    summary: Summary | None = None
    for part in client.generate(TokenPrompt(prompt_ids), options, timeout_s=_TIMEOUT_S):
        if isinstance(part, Summary):
            summary = part
        else:
            token_ids.extend(part.token_ids)
    assert summary is not None, "an answer ends with one, or raises"
    return tuple(token_ids), summary


def _measured(
    address: str,
    info: ServiceInfo,
    asked: Sequence[tuple[ServiceAnswer, Summary, bool]],
    fleet: Fleet | None,
    problem: str,
) -> ServiceMeasured:
    drafted = [(answer, summary) for answer, summary, is_plain in asked if not is_plain]
    drafts = draft_metrics(
        [Measurement(token_ids=answer.token_ids, arrivals=(), summary=summary) for answer, summary in drafted]
    )
    assert drafts is not None, "every answer has a summary"
    plain = _tokens_per_s([summary for _, summary, is_plain in asked if is_plain])
    greedy = _tokens_per_s([summary for answer, summary in drafted if answer.temperature == 0])
    reasons = Counter(summary.speculation.reason for _, summary in drafted if summary.speculation.reason)
    return ServiceMeasured(
        address=address,
        version=info.version,
        dtype=info.dtype,
        proposers=info.proposers,
        num_answers=len(drafted),
        acceptance=drafts.acceptance_per_position,
        tokens_per_round=drafts.mean_acceptance_length,
        num_draft_tokens=drafts.num_draft_tokens,
        tokens_per_s=_tokens_per_s([summary for _, summary in drafted]),
        plain_tokens_per_s=plain,
        speed_up=greedy / plain if plain else None,
        reasons=dict(reasons.most_common()),
        fleet=fleet,
        fleet_problem=problem,
    )


def _tokens_per_s(summaries: Sequence[Summary]) -> float:
    """0.0 where no answer has a second token."""
    timed = [each for each in summaries if each.num_output_tokens >= _MIN_TIMED_TOKENS]
    time_s = sum(each.total_time_s - each.time_to_first_token_s for each in timed)
    return sum(each.num_output_tokens - 1 for each in timed) / time_s if time_s > 0 else 0.0
