"""From a configuration to an engine: emulated, or in a process of its own."""

from __future__ import annotations

from pilotfish.config import Config
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.head import EmulatedHead
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import DrafterForm, HardwareProfile, ProfiledDrafter, ScaledCost, load_profile
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder, spoken_tokens
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.engine.process.wire import Role
from pilotfish.engine_client import EngineClient
from pilotfish.errors import ConfigError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import Limits


async def start_engine(config: Config, role: Role, *, rank_folder: str = "") -> EngineClient:
    """The engine of the configuration's target or draft section: in a process of its own, or emulated, if there is an
    `emulation` section. Raises as ProcessEngine.start and start_emulated_engine do."""
    if config.emulation.is_on:
        return start_emulated_engine(config, role)
    return await ProcessEngine.start(config, role, rank_folder=rank_folder)


def start_emulated_engine(config: Config, role: Role) -> EmulatedEngine:
    """The engine of config.emulation.profile, in this process: it computes next to nothing.

    Must be called on a running event loop. Raises ConfigError for an unknown profile or drafter.
    """
    emulation = config.emulation
    profile = load_profile(emulation.profile)
    folder = emulated_tokenizer_folder(config)
    tokenizer = Tokenizer.load(folder)
    spoken = spoken_tokens(tokenizer)
    service = config.target if role == "target" else config.draft
    head = head_in_target(config, profile)
    drafter = profile.drafter(emulation.drafter) if emulation.drafter and head is None else None
    draft_cost = profile.draft if drafter is None else drafter.cost
    acceptance = emulation.acceptance if drafter is None else drafter.acceptance
    kv_cache_tokens = profile.kv_cache_tokens if role == "target" else profile.draft_kv_cache_tokens
    return EmulatedEngine(
        role,
        language_model=HashLanguageModel(
            vocab_size=spoken.stop,
            first_token_id=spoken.start,
            acceptance_seed=emulation.seed,
            step_acceptance=emulation.step_acceptance,
        ),
        acceptance=acceptance if head is None or role == "draft" else head.acceptance,
        step_cost=ScaledCost(profile.target if role == "target" else draft_cost, emulation.time_scale),
        limits=Limits(
            max_draft_tokens=service.engine.max_draft_tokens,
            max_sequences=emulation.max_sequences or profile.max_sequences,
        ),
        max_context_tokens=profile.max_context_tokens,
        max_batch_tokens=emulation.max_batch_tokens or profile.max_batch_tokens,
        kv_cache_tokens=emulation.kv_cache_tokens or kv_cache_tokens,
        prefix_caching=service.engine.prefix_caching,
        vocab_size=tokenizer.vocab_size,
        feature_bytes=0 if drafter is None else drafter.feature_bytes,
        head_cost=None if head is None or role == "draft" else ScaledCost(head.cost, emulation.time_scale),
        acceptance_ahead=() if drafter is None else drafter.acceptance_ahead,
        drafts_ahead=drafter is None or drafter.drafts_ahead,
        model_id=f"emulated {profile.name}",
        tokenizer_fingerprint=tokenizer.fingerprint,
        tokenizer_path=str(folder),
    )


def head_in_target(config: Config, profile: HardwareProfile) -> ProfiledDrafter | None:
    """The profile's head that `target.drafter` asks for: `emulation.drafter`, or the first one. None: it asks for none.

    Raises ConfigError where the profile lacks it.
    """
    proposer, name = config.target.drafter.proposer, config.emulation.drafter
    if proposer == "none":
        return None
    if proposer != EmulatedHead.name:
        raise ConfigError(
            f"target.drafter.proposer {proposer} is not emulated: set it to {EmulatedHead.name}, or to none"
        )
    heads = [one for one in profile.drafters if one.kind is DrafterForm.HEAD and name in ("", one.name)]
    if not heads:
        raise ConfigError(
            f"target.drafter.proposer is {proposer}, and {name or 'no drafter'} of profile {profile.name} is a head: "
            "name one in emulation.drafter, or set target.drafter.proposer to none"
        )
    return heads[0]


def describe_emulation(profile: HardwareProfile, time_scale: float = 1.0) -> str:
    """A line for people: what they are about to see is not what it looks like."""
    times = "the hardware's" if time_scale == 1 else f"{time_scale:g} times the hardware's"
    return (
        f"EMULATED hardware {profile.name}: {profile.description}. The answers are words without meaning; their "
        f"times are {times}, and everything around the engines is real."
    )
