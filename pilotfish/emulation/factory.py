"""From a configuration with an `emulation` section to the engine that a service runs in the real one's place."""

from __future__ import annotations

from typing import Literal

from pilotfish.config import Config
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import HardwareProfile, ScaledCost, load_profile
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder, spoken_tokens
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import Limits


def start_emulated_engine(config: Config, role: Literal["target", "draft"]) -> EmulatedEngine:
    """The engine of config.emulation.profile, in this process: it computes next to nothing.

    Must be called on a running event loop. Raises: ConfigError for an unknown profile; OSError when no tokenizer
    can be written anywhere.
    """
    emulation = config.emulation
    profile = load_profile(emulation.profile)
    folder = emulated_tokenizer_folder(config)
    tokenizer = Tokenizer.load(folder)
    spoken = spoken_tokens(tokenizer)
    service = config.target if role == "target" else config.draft
    kv_cache_tokens = profile.kv_cache_tokens if role == "target" else profile.draft_kv_cache_tokens
    return EmulatedEngine(
        role,
        language_model=HashLanguageModel(
            vocab_size=spoken.stop, first_token_id=spoken.start, acceptance_seed=emulation.seed
        ),
        acceptance=emulation.acceptance,
        step_cost=ScaledCost(profile.target if role == "target" else profile.draft, emulation.time_scale),
        limits=Limits(
            max_draft_tokens=service.engine.max_draft_tokens,
            max_sequences=emulation.max_sequences or profile.max_sequences,
        ),
        max_context_tokens=profile.max_context_tokens,
        max_batch_tokens=emulation.max_batch_tokens or profile.max_batch_tokens,
        kv_cache_tokens=emulation.kv_cache_tokens or kv_cache_tokens,
        prefix_caching=service.engine.prefix_caching,
        vocab_size=tokenizer.vocab_size,
        model_id=f"emulated {profile.name}",
        tokenizer_fingerprint=tokenizer.fingerprint,
        tokenizer_path=str(folder),
    )


def describe_emulation(profile: HardwareProfile, time_scale: float = 1.0) -> str:
    """A line for people: what they are about to see is not what it looks like."""
    times = "the hardware's" if time_scale == 1 else f"{time_scale:g} times the hardware's"
    return (
        f"EMULATED hardware {profile.name}: {profile.description}. The answers are words without meaning; their "
        f"times are {times}, and everything around the engines is real."
    )
