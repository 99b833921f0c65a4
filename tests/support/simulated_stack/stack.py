"""A target and a drafter in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from pilotfish.emulation.core import EmulatedCore
from pilotfish.engine.batching.batching_delay import BatchingDelay
from tests.support.simulated_stack.engine import SimulatedEngine
from tests.support.simulated_stack.view import View
from tests.support.simulated_stack.world import NETWORK_S, World


class Stack:
    """What sequences decode on."""

    in_target = False
    """Whether a head in the target drafts."""
    predraft: PredraftPolicy | None = None
    """How far the draft replica may draft ahead; None: not at all."""

    def __init__(
        self,
        world: World,
        target: EmulatedCore,
        draft: EmulatedCore,
        delay: BatchingDelay | None,
        target_one_way_s: float = NETWORK_S,
        draft_one_way_s: float = NETWORK_S,
    ) -> None:
        """delay: has the target wait for sequences that come back soon; None: nobody is waited for."""
        self.world = world
        self.target = SimulatedEngine(world, target, target_one_way_s, delay)
        self.draft = SimulatedEngine(world, draft, draft_one_way_s)
        self.num_sequences = 0
        """Begun so far."""
        self.num_tokens = 0
        """Decoded so far, of all sequences."""
        self._new_id: Callable[[], int] = itertools.count(1).__next__

    def arrived(self, num_tokens: int) -> None:
        """So many more tokens came to the orchestrator."""
        self.num_tokens += num_tokens

    def view(self, engine: SimulatedEngine) -> View:
        """The engine as the machine sees it."""
        replica_id = "t" if engine is self.target else "d"
        return View(replica_id, engine, engine.core.model, engine.core.limits, self._new_id)
