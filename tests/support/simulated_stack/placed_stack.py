"""A profile's target and a drafter in one of its places, as they are: for where drafters should run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.control.replica_state import ControlState
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.head_core import EmulatedHeadCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import HardwareProfile, ProfiledDrafter
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.types import Limits, ModelInfo
from tests.support.simulated_stack.stack import Stack
from tests.support.simulated_stack.world import NETWORK_S, Noise, World

_LANGUAGE_MODEL = HashLanguageModel(vocab_size=32_000)


@dataclass(frozen=True, kw_only=True)
class Way:
    """Who drafts, where, and how far away."""

    drafter: ProfiledDrafter | None = None
    """None: the profile's draft model, with `acceptance`."""
    acceptance: float = 0.8
    in_target: bool = False
    draft_ahead: Literal["auto", "off", "on"] = "off"
    target_one_way_s: float = NETWORK_S
    draft_one_way_s: float = NETWORK_S
    handling_s: float = 0.0
    """Time that the orchestrator needs for each message."""


class PlacedStack(Stack):
    """See the module."""

    def __init__(self, profile: HardwareProfile, way: Way) -> None:
        world = World(noise=Noise(handling_s=way.handling_s, handling_spread=0.0))
        target, draft = (make(profile, way, lambda: world.now_ns) for make in (_target_core, _draft_core))
        delay = BatchingDelay(target.step_costs, profile.max_batch_tokens)
        super().__init__(world, target, draft, delay, way.target_one_way_s, way.draft_one_way_s)
        self.in_target = way.in_target
        self.control = ControlState(SpeculationConfig())
        self.predraft = PredraftPolicy(way.draft_ahead, SpeculationConfig.draft_ahead_tokens)
        self.arrivals: list[tuple[float, int]] = []
        """When tokens came to the orchestrator, and how many there were then."""

    def arrived(self, num_tokens: int) -> None:
        super().arrived(num_tokens)
        self.arrivals.append((self.world.now_s, self.num_tokens))


def _target_core(profile: HardwareProfile, way: Way, clock_ns: Callable[[], int]) -> EmulatedCore:
    head = way.drafter if way.in_target else None
    return EmulatedCore(
        _model(profile, way, "" if head is None else "eagle3"),
        _limits(profile),
        _LANGUAGE_MODEL,
        acceptance=_acceptance(way),
        step_cost=profile.target,
        kv_cache_tokens=profile.kv_cache_tokens,
        max_batch_tokens=profile.max_batch_tokens,
        feature_bytes=_feature_bytes(way),
        head_cost=None if head is None else head.cost,
        clock_ns=clock_ns,
    )


def _draft_core(profile: HardwareProfile, way: Way, clock_ns: Callable[[], int]) -> EmulatedCore:
    options: dict[str, Any] = {
        "acceptance": _acceptance(way),
        "step_cost": profile.draft if way.drafter is None else way.drafter.cost,
        "kv_cache_tokens": profile.draft_kv_cache_tokens,
        "max_batch_tokens": profile.max_batch_tokens,
        "clock_ns": clock_ns,
    }
    arguments = _model(profile, way, "emulated"), _limits(profile), _LANGUAGE_MODEL
    if way.drafter is None or not _feature_bytes(way):
        return EmulatedCore(*arguments, **options)
    return EmulatedHeadCore(*arguments, acceptance_ahead=way.drafter.acceptance_ahead, **options)


def _feature_bytes(way: Way) -> int:
    return 0 if way.in_target or way.drafter is None else way.drafter.feature_bytes


def _acceptance(way: Way) -> float | tuple[float, ...]:
    return way.acceptance if way.drafter is None else way.drafter.acceptance


def _limits(profile: HardwareProfile) -> Limits:
    return Limits(max_draft_tokens=16, max_sequences=profile.max_sequences)


def _model(profile: HardwareProfile, way: Way, proposer: str) -> ModelInfo:
    return ModelInfo(
        model_id=profile.name,
        tokenizer_fingerprint="",
        vocab_size=_LANGUAGE_MODEL.vocab_size,
        max_context_tokens=profile.max_context_tokens,
        proposer=proposer,
        emulated=True,
        feature_layers=(0,) if _feature_bytes(way) else (),
        takes_int8_features=True,
    )
