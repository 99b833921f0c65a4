"""A sequence that is too much for the draft replica goes without drafts; others have them as before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pilotfish.config import config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.stack import running_stack
from tests.support.threaded_engine import ThreadedEngine

SHORT, LONG = "a small fish", "the big one decides " * 8
DRAFTED = {"mode": pb.SPECULATION_MODE_ON, "proposer": "draft", "num_speculative_tokens": 4}
SMALL: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "a lookup's context": ("suffix", {"max_context_tokens": 96}, "context"),
    "a draft model's context": ("model", {"max_context_tokens": 96}, "context"),
    "a draft model's KV cache": ("model", {"kv_cache_tokens": 96}, "KV cache"),
}
"""What is too small for LONG: the proposer, keys of its engine, a word of what it says."""


@pytest.mark.parametrize("what", SMALL)
async def test_one_that_is_too_long_leaves_the_drafter_to_others(
    what: str, target_folder: Path, tmp_path: Path
) -> None:
    proposer, small, word = SMALL[what]
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 2048}
    config = config_from_dict(
        {
            "target": {"model": str(target_folder), "engine": engine},
            "draft": {"model": str(target_folder), "proposer": proposer, "engine": engine | small},
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "decode_run_tokens": 2}},
            "cache_dir": str(tmp_path),
        }
    )
    draft_engine = ThreadedEngine(build_engine(config, "draft")) if proposer == "model" else None
    target_engine = ThreadedEngine(build_engine(config, "target"))
    async with running_stack(config, target_engine=target_engine, draft_engine=draft_engine) as stack:
        (link,) = stack.orchestrator.service.drafts.links
        plain = await stack.ask(SHORT, temperature=0, speculation={"mode": pb.SPECULATION_MODE_OFF})
        for _ in range(4):  # more than open a circuit
            long = await stack.ask(LONG, temperature=0, speculation=DRAFTED)
            assert long.speculation.num_rounds == 0
            assert (long.speculation.reason_id, word in long.speculation.reason) == ("no_drafter", True)
            # One that outgrows the drafter under way keeps what it had until then.
            grown = await stack.ask(SHORT, temperature=0, speculation=DRAFTED, max_tokens=150)
            assert grown.speculation.num_rounds > 0
            assert grown.speculation.reason_id == "no_drafter"
            assert (link.circuit_state, link.has_room, link.problem) == ("closed", True, "")
            short = await stack.ask(SHORT, temperature=0, speculation=DRAFTED)
            assert (short.speculation.num_rounds > 0, short.speculation.reason_id) == (True, "")
            assert short.token_ids == plain.token_ids
