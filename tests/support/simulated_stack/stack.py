"""A target and a draft replica of a hardware profile."""

from collections.abc import Sequence

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.drafter import EmulatedDrafter
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import HardwareProfile, StepCost
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.types import Limits, ModelInfo
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.replica import NoisyCost, Replica
from tests.support.simulated_stack.world import Noise, World

_LIMITS = Limits(max_draft_tokens=64, max_sequences=10**6)
_KV_CACHE_TOKENS = 1 << 19


class SimulatedStack:
    """What sequences decode on."""

    def __init__(
        self,
        profile: HardwareProfile,
        acceptance: float,
        seed: int = 0,
        *,
        delays: bool = True,
        ahead: float = 0.0,
        answered: float = 1.0,
        noise: Noise | None = None,
        start_s: float = 0.0,
        prompt_tokens: Sequence[int] = (),
    ) -> None:
        """acceptance: probability of each draft token, given those before it; may be changed at any time.

        delays: whether the target waits for sequences that come back soon. ahead: share of the drafts that were made
        ahead, so that a round does not wait for them. answered: share of the passages of texts in which the drafter
        has an answer at all. prompt_tokens: lengths that requests have in turn; without any they are short.
        """
        self.world = World(seed, noise, start_s)
        self.ahead, self.answered = ahead, answered
        self.prompt_tokens = prompt_tokens
        self.language_model = HashLanguageModel(acceptance_seed=seed)
        self._max_rows = profile.max_batch_tokens
        target = self._core(profile.target, "")
        self.target = Replica(self.world, target, BatchingDelay(target.step_costs, self._max_rows) if delays else None)
        self.draft = Replica(self.world, self._core(profile.draft, "emulated"))
        self.acceptance = acceptance
        self.num_sequences = 0
        """Begun so far."""
        self.num_tokens = 0
        """Decoded so far, of all sequences."""

    @property
    def acceptance(self) -> float:
        return self._acceptance

    @acceptance.setter
    def acceptance(self, acceptance: float) -> None:
        self._acceptance = acceptance
        self.draft.core.drafter = EmulatedDrafter(self.language_model, acceptance)

    def _core(self, cost: StepCost, proposer: str) -> EmulatedCore:
        model = ModelInfo(
            model_id="simulated",
            tokenizer_fingerprint="",
            vocab_size=self.language_model.vocab_size,
            max_context_tokens=2 * ENDLESS,
            proposer=proposer,
        )
        noisy = NoisyCost(self.world, cost)
        core = EmulatedCore(
            model,
            _LIMITS,
            self.language_model,
            step_cost=noisy,
            kv_cache_tokens=_KV_CACHE_TOKENS,
            max_batch_tokens=self._max_rows,
            prefix_caching=False,
            clock_ns=lambda: self.world.now_ns,
        )
        noisy.is_on = True
        return core
