"""A target and a draft replica of a hardware profile."""

from collections.abc import Sequence

from pilotfish.emulation.profiles import HardwareProfile
from tests.support.simulated_stack.replica import DelayingTarget, Replica
from tests.support.simulated_stack.world import Noise, World


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
        has an answer at all. prompt_tokens: lengths that requests have in turn; without any prompts cost nothing.
        """
        self.world = World(seed, noise, start_s)
        self.acceptance = acceptance
        self.ahead, self.answered = ahead, answered
        self.prompt_tokens = prompt_tokens
        kind = DelayingTarget if delays else Replica
        self.target = kind(self.world, profile.target, profile.max_batch_tokens)
        self.draft = Replica(self.world, profile.draft, profile.max_batch_tokens)
        self.num_sequences = 0
        """Begun so far."""
        self.num_tokens = 0
        """Decoded so far, of all sequences."""
