"""Our own arms: one proposer at one length, through a running orchestrator."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pilotfish.bench.measurement import Arrival, Measurement
from pilotfish.client.answer import GenerateOptions, Summary, TokenPrompt
from pilotfish.client.inference import InferenceClient
from pilotfish.errors import InternalError
from pilotfish.types import AcceptanceMode, TokenLogprobs

PLAIN = "plain"
STEP = "step"


@dataclass(frozen=True)
class Variant:
    """A way of decoding."""

    proposer: str = ""
    """The proposer's name in reports; empty: plain decoding."""
    num_speculative_tokens: int | None = None
    """Speculate in every round with so many draft tokens; None: the controller decides (mode auto)."""
    lossy_by: str = ""
    """`typical`, `tolerance` or `step`; empty: the answers are exact."""

    @property
    def is_plain(self) -> bool:
        return not self.proposer

    @property
    def name(self) -> str:
        if self.is_plain:
            return PLAIN
        length = "auto" if self.num_speculative_tokens is None else f"K={self.num_speculative_tokens}"
        return f"{self.proposer} {length} {self.lossy_by}".rstrip()


class PilotfishArm:
    """Asks an orchestrator, with a variant's speculation options over common ones."""

    def __init__(
        self,
        client: InferenceClient,
        variant: Variant,
        *,
        request_proposer: str = "",
        common: GenerateOptions,
        timeout_s: float,
        label: str = "",
    ) -> None:
        """request_proposer: the proposer's name in requests. label: stands before the variant's name in reports.
        common: if it has a cache salt, each answer gets one of its own."""
        self.name = f"{label} {variant.name}".strip()
        self.variant = variant
        self._client = client
        self._timeout_s = timeout_s
        length = variant.num_speculative_tokens
        mode = "off" if variant.is_plain else "auto" if length is None else "on"
        self._options = replace(common, speculation=mode, num_speculative_tokens=length, proposer=request_proposer)
        if variant.lossy_by == STEP:
            self._options = replace(self._options, level=STEP)
        elif variant.lossy_by:
            self._options = replace(self._options, acceptance=AcceptanceMode[variant.lossy_by.upper()])

    def answer(
        self, prompt_token_ids: Sequence[int], *, max_tokens: int, num_logprobs: int | None = None
    ) -> Measurement:
        """Answer once. Raises PilotfishError."""
        arrivals: list[Arrival] = []
        token_ids: list[int] = []
        texts: list[str] = []
        logprobs: list[TokenLogprobs] = []
        summary: Summary | None = None
        salt = self._options.cache_salt and secrets.token_hex(8)
        options = replace(self._options, max_tokens=max_tokens, logprobs=num_logprobs, cache_salt=salt)
        prompt = TokenPrompt(tuple(prompt_token_ids))
        start = time.perf_counter()
        for message in self._client.generate(prompt, options, timeout_s=self._timeout_s):
            if isinstance(message, Summary):
                summary = message
                continue
            texts.append(message.text)
            if message.token_ids:
                arrivals.append(Arrival(time.perf_counter() - start, len(message.token_ids)))
                token_ids += message.token_ids
                logprobs += message.logprobs
        if summary is None:
            raise InternalError("the answer broke off before its summary")
        return Measurement(
            token_ids=tuple(token_ids),
            arrivals=tuple(arrivals),
            text="".join(texts),
            summary=summary,
            logprobs=tuple(logprobs),
        )
