"""How likely an answer is under the target: the same for every lossless arm, lower where quality is lost."""

from __future__ import annotations

import statistics

from pilotfish.bench.arms import PilotfishArm
from pilotfish.bench.measurement import Arm, Measurement


class Scorer:
    """Mean log-probabilities of answers, each asked for in a run of its own: they cost time.

    An answer equal to plain decoding's has plain decoding's log-probabilities, so most cost nothing.
    """

    def __init__(self, plain: PilotfishArm) -> None:
        self._plain = plain
        self._prompt_token_ids: tuple[int, ...] = ()
        self._max_tokens = 0
        self._reference: tuple[tuple[int, ...], tuple[float, ...]] = ((), ())

    def begin(self, prompt_token_ids: tuple[int, ...], max_tokens: int) -> None:
        """Answer a prompt plainly. It also puts the prompt into the prefix cache, if any, for all arms alike."""
        self._prompt_token_ids = prompt_token_ids
        self._max_tokens = max_tokens
        self._reference = self._plain.logprobs(prompt_token_ids, max_tokens=max_tokens)

    def mean_logprob(self, arm: Arm, measurement: Measurement) -> float | None:
        """Nats per token of an arm's answer to the prompt begun with; None where nobody tells."""
        token_ids, logprobs = self._reference
        if measurement.token_ids != token_ids:
            if not isinstance(arm, PilotfishArm):
                return None
            _, logprobs = arm.logprobs(self._prompt_token_ids, max_tokens=self._max_tokens)
        return statistics.fmean(logprobs) if logprobs else None
