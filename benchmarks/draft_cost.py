"""What a draft token costs, in decode steps of the target: engines in this process, nothing else in between."""

from __future__ import annotations

import dataclasses
import statistics
import time
from itertools import count

import torch

from pilotfish.config import Config, SelfDrafterConfig
from pilotfish.engine.core import EngineCore
from pilotfish.engine.factory import build_engine
from pilotfish.messages import Decode, OpenSequence, Proposal, Propose, Verdict, Verify
from pilotfish.types import SamplingParams

CONTEXT_TOKENS = 256
RUN_TOKENS = 2048
_GREEDY = SamplingParams(temperature=0, max_tokens=1 << 12)


class Timed:
    """One sequence in one engine; every call does one thing and gives its milliseconds."""

    def __init__(self, core: EngineCore, sequence_ids: count[int]) -> None:
        self._core = core
        self._sequence_id = next(sequence_ids)
        self._length = CONTEXT_TOKENS
        prompt = tuple((31 * index + 7) % 4000 for index in range(CONTEXT_TOKENS))
        core.submit(OpenSequence(self._sequence_id, prompt, _GREEDY))
        self._until(Decode(self._sequence_id, self._length, 1))

    def decode(self) -> float:
        """One plain step."""
        return self._until(Decode(self._sequence_id, self._length, 1))

    def begin_run(self, num_draft_tokens: int) -> None:
        """From now on `step` is one of a run whose drafts are made beside the target."""
        self._core.submit(Decode(self._sequence_id, self._length, RUN_TOKENS, num_draft_tokens))
        self.step()
        self.step()

    def step(self) -> float:
        """Verify the last step's drafts and make those of the next."""
        start = time.perf_counter()
        self._core.step()
        return (time.perf_counter() - start) * 1e3

    def verify(self, num_draft_tokens: int) -> float:
        """One step that verifies drafts which are all wrong."""
        return self._until(Verify(self._sequence_id, self._length, (4001,) * num_draft_tokens))

    def propose(self, num_draft_tokens: int) -> float:
        """One proposal that knows of one new token."""
        self._length += 1
        return self._until(Propose(self._sequence_id, self._length, (4002,), num_draft_tokens))

    def _until(self, command: Decode | Verify | Propose) -> float:
        """Milliseconds until the command's first answer."""
        start = time.perf_counter()
        self._core.submit(command)
        while True:
            for event in self._core.step():
                if isinstance(event, Verdict):
                    self._length += len(event.token_ids)
                if isinstance(event, Verdict | Proposal):
                    return (time.perf_counter() - start) * 1e3


def model_draft_cost(config: Config, num_draft_tokens: int, samples: int) -> float:
    """A draft token of the configuration's draft model over a decode step of its target."""
    target, draft = build_engine(config, "target"), build_engine(config, "draft")
    torch.set_num_threads(1)  # as in an engine process with native kernels
    ids = count(1)
    deciding, proposing = Timed(target, ids), Timed(draft, ids)
    ratios = [proposing.propose(num_draft_tokens) / deciding.decode() for _ in range(samples)]
    return statistics.median(ratios) / num_draft_tokens


def self_draft_cost(config: Config, num_draft_tokens: int, samples: int) -> float:
    """The same for a drafter beside the target: what a step takes longer when it drafts as well as verifies."""
    alone = dataclasses.replace(config.target, self_drafter=SelfDrafterConfig())
    verifying = build_engine(dataclasses.replace(config, target=alone), "target")
    drafting = build_engine(config, "target")
    torch.set_num_threads(1)
    ids = count(1)
    deciding, running = Timed(verifying, ids), Timed(drafting, ids)
    running.begin_run(num_draft_tokens)
    ratios = [
        (running.step() - deciding.verify(num_draft_tokens)) / deciding.decode()
        for _ in range(min(samples, RUN_TOKENS // (num_draft_tokens + 1) - 2))
    ]
    return statistics.median(ratios) / num_draft_tokens
