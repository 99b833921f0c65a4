"""The proposer class that vLLM loads: its drafts come from Pilotfish's draft service."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotfish.config import environment
from pilotfish.config.vllm import remote_proposer_config
from pilotfish.integrations.vllm.background import BackgroundDrafting
from pilotfish.integrations.vllm.batch_rows import BatchRows, TokenIds
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.target_model import TargetModel
from pilotfish.integrations.vllm.tensor_parallel import Drafts, tensor_parallel_ranks
from pilotfish.rpc.link_security import LinkSecurity

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# vLLM gives handlers and a level to loggers of this name alone.
_log = logging.getLogger("vllm.pilotfish")


class RemoteProposer:
    """`--speculative-config '{"method": "custom_class", "model": "pilotfish.integrations.vllm.RemoteProposer",
    "num_speculative_tokens": 8}'`.

    vLLM makes one in each worker and calls `propose` after every step, on the thread that runs the model. What vLLM
    says does not depend on it: whatever happens to the draft pool, rows without a draft are decoded plainly.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        """Connects behind vLLM's start. Raises ConfigError for settings that are wrong: nothing else is checked."""
        additional = vllm_config.additional_config
        config = remote_proposer_config(additional if isinstance(additional, dict) else None, environment())
        self._ranks = tensor_parallel_ranks(vllm_config.parallel_config.tensor_parallel_size)
        self._deadline_s = config.draft_deadline_ms / 1000
        self._max_rows = config.disable_by_batch_size
        self._rows = BatchRows()
        self._background: BackgroundDrafting | None = None
        self.counters = ProposerCounters()
        if config.mode != "off" and self._ranks.asks:
            security = LinkSecurity(config.security)
            self._background = BackgroundDrafting(config, TargetModel.of(vllm_config), security, self.counters)
            self._stop = weakref.finalize(self, self._background.stop)

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: Sequence[int] | TokenIds,
        token_ids_cpu: TokenIds,
        slot_mappings: object = None,  # noqa: ARG002
    ) -> Drafts:
        """Drafts for the rows of vLLM's batch, [B] lists of up to num_speculative_tokens; empty: none.

        sampled_token_ids: what the step committed to each row, nothing while its prompt is read. num_tokens_no_spec:
        [B or more], tokens of each row, these included. token_ids_cpu: [B or more, context]. Waits for the draft
        deadline at most, and never raises.
        """
        drafts: Drafts = [[] for _ in sampled_token_ids]
        is_small = not self._max_rows or len(sampled_token_ids) <= self._max_rows
        if is_small and self._background is not None and self._background.is_ready:
            drafts = self._ask(self._background, sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
        return self._ranks.share(drafts)

    def load_model(self, *args: object, **kwargs: object) -> None:
        """Does nothing: vLLM calls it on every proposer; the model is elsewhere."""

    def close(self) -> None:
        """End the connections and their thread; from then on no drafts. At the latest when the worker ends."""
        if self._background is not None:
            self._stop()

    def _ask(
        self,
        background: BackgroundDrafting,
        sampled: list[list[int]],
        num_tokens: Sequence[int] | TokenIds,
        token_ids: TokenIds,
    ) -> Drafts:
        try:
            step = DraftingStep(self._rows.update(sampled, num_tokens, token_ids))
            background.begin(step)
            drafts = step.wait(self._deadline_s if background.is_usable else 0.0)
            self.counters.num_missed_deadlines += step.num_missing
            return drafts
        except Exception:
            # An error here would end vLLM's engine, and with it every request.
            self.counters.num_proposer_faults += 1
            if self.counters.num_proposer_faults == 1:
                _log.exception("Pilotfish's proposer failed: vLLM decodes such steps without drafts; logged once")
            # The batch may have been followed and not sent: all rows begin anew.
            self._rows.forget()
            return [[] for _ in sampled]
