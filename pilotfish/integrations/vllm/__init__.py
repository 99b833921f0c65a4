"""A stock vLLM with Pilotfish's draft pool: see docs/vllm.md.

It runs in vLLM's workers and brings none of vLLM's, torch's or Ray's packages: vLLM gives it lists and arrays.
"""

from __future__ import annotations

from pilotfish.integrations.vllm.proposer import RemoteProposer

__all__ = ["RemoteProposer"]
