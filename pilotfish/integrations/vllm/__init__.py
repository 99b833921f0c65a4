"""A stock vLLM with Pilotfish's draft pool (docs/vllm.md): in vLLM's workers, without torch's or Ray's packages."""

from __future__ import annotations

from pilotfish.integrations.vllm.proposer import RemoteProposer

__all__ = ["RemoteProposer"]
