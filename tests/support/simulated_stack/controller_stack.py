"""A profile's target and draft replica, with chance in rounds and endless contexts: for how controllers decide."""

from collections.abc import Sequence

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.drafter import EmulatedDrafter
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import HardwareProfile, StepCost
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.types import Limits, ModelInfo
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.stack import Stack
from tests.support.simulated_stack.world import Noise, World

_LIMITS = Limits(max_draft_tokens=64, max_sequences=10**6)
_KV_CACHE_TOKENS = 1 << 19


class NoisyCost:
    """What steps take on a machine that disturbs them, once it is switched on. See StepCost.

    Contexts cost nothing: sequences without an end would slow down while they are measured.
    """

    def __init__(self, world: World, cost: StepCost) -> None:
        self.is_on = False
        self._world, self._cost = world, cost

    def step_s(self, num_sequences: int, num_tokens: int, num_context_tokens: int = 0) -> float:
        del num_context_tokens
        seconds = self._cost.step_s(num_sequences, num_tokens)
        return self._world.step_s(seconds) if self.is_on else seconds


class ControllerStack(Stack):
    """See the module."""

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
        world, max_rows = World(seed, noise, start_s), profile.max_batch_tokens
        self.language_model = HashLanguageModel(acceptance_seed=seed)
        target = _core(world, self.language_model, profile.target, max_rows, "")
        draft = _core(world, self.language_model, profile.draft, max_rows, "emulated")
        super().__init__(world, target, draft, BatchingDelay(target.step_costs, max_rows) if delays else None)
        self.ahead, self.answered = ahead, answered
        self.prompt_tokens = prompt_tokens
        self.acceptance = acceptance

    @property
    def acceptance(self) -> float:
        return self._acceptance

    @acceptance.setter
    def acceptance(self, acceptance: float) -> None:
        self._acceptance = acceptance
        self.draft.core.drafter = EmulatedDrafter(self.language_model, acceptance)


def _core(
    world: World, language_model: HashLanguageModel, cost: StepCost, max_rows: int, proposer: str
) -> EmulatedCore:
    model = ModelInfo(
        model_id="simulated",
        tokenizer_fingerprint="",
        vocab_size=language_model.vocab_size,
        max_context_tokens=2 * ENDLESS,
        proposer=proposer,
    )
    noisy = NoisyCost(world, cost)
    core = EmulatedCore(
        model,
        _LIMITS,
        language_model,
        step_cost=noisy,
        kv_cache_tokens=_KV_CACHE_TOKENS,
        max_batch_tokens=max_rows,
        prefix_caching=False,
        clock_ns=lambda: world.now_ns,
    )
    noisy.is_on = True
    return core
