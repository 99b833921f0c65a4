"""The proposer class that vLLM loads: its drafts come from Pilotfish's draft service."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotfish.config import environment
from pilotfish.config.vllm import remote_proposer_config
from pilotfish.integrations.vllm.asker import Asker
from pilotfish.integrations.vllm.background import BackgroundDrafting
from pilotfish.integrations.vllm.batch_rows import TokenIds
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.pace import Pace
from pilotfish.integrations.vllm.target_model import TargetModel
from pilotfish.integrations.vllm.tensor_parallel import Drafts, tensor_parallel_ranks
from pilotfish.rpc.link_security import LinkSecurity

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class RemoteProposer:
    """`--speculative-config '{"method": "custom_class", "model": "pilotfish.integrations.vllm.RemoteProposer",
    "num_speculative_tokens": 8}'`.

    vLLM makes one in each worker and calls `propose` after every step, on the thread that runs the model. What vLLM
    says does not depend on it: whatever happens to the draft pool, rows without a draft are decoded plainly.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        """Connects behind vLLM's start. Raises ConfigError for settings that are wrong: nothing else is checked."""
        speculation = vllm_config.speculative_config
        assert speculation is not None
        additional = vllm_config.additional_config
        config = remote_proposer_config(additional if isinstance(additional, dict) else None, environment())
        self._ranks = tensor_parallel_ranks(vllm_config.parallel_config.tensor_parallel_size)
        self._asker: Asker | None = None
        self.counters = ProposerCounters()
        if config.mode != "off" and self._ranks.asks:
            security = LinkSecurity(config.security)
            background = BackgroundDrafting(config, TargetModel.of(vllm_config), security, self.counters)
            self._stop = weakref.finalize(self, background.stop)
            num_tokens = int(speculation.num_speculative_tokens)
            pace = Pace(config.draft_deadline_ms / 1000, num_tokens, is_measuring=config.mode == "auto")
            self._asker = Asker(background, pace)

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: Sequence[int] | TokenIds,
        token_ids_cpu: TokenIds,
        slot_mappings: object = None,  # noqa: ARG002
    ) -> Drafts:
        """Drafts for the rows of vLLM's batch, [B] lists of up to num_speculative_tokens; empty: none.

        sampled_token_ids: what the step committed to each row, nothing while its prompt is read. num_tokens_no_spec:
        [B or more], tokens of each row, these included. token_ids_cpu: [B or more, context]. Never raises.
        """
        drafts: Drafts = [[] for _ in sampled_token_ids]
        if self._asker is not None:
            drafts = self._asker.drafts(sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
        return self._ranks.share(drafts)

    def load_model(self, *args: object, **kwargs: object) -> None:
        """vLLM calls it on every proposer; the model is elsewhere."""

    def close(self) -> None:
        """End the connections and their thread; from then on no drafts. At the latest when the worker ends."""
        if self._asker is not None:
            self._stop()
