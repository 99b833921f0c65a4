"""What one salt's requests have said drafts for requests of the same salt alone, wherever the lookup is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pilotfish.config import config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from tests.support.stack import Answer, running_stack
from tests.support.threaded_engine import ThreadedEngine

PLACES: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "orchestrator": ("suffix", {}, "suffix"),
    "orchestrator by default": ("auto", {}, "auto"),
    "draft service": ("draft", {}, "suffix"),
    "orchestrator, before the pool": ("draft", {}, "model"),
    "target": ("suffix", {"drafter": {"proposer": "none", "lookup": "suffix"}}, "suffix"),
}
"""By where the lookup is: the request's proposer, keys of the target, and draft.proposer."""


@pytest.mark.parametrize("place", PLACES)
async def test_drafts_come_from_the_same_salt_alone(place: str, target_folder: Path, tmp_path: Path) -> None:
    proposer, target, pool = PLACES[place]
    lookup = "suffix" if place == "orchestrator, before the pool" else "none"
    service = {"model": str(target_folder), "engine": {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}}
    config = config_from_dict(
        {
            "target": {**service, **target},
            "draft": {**service, "proposer": pool},
            "orchestrator": {"speculation": {"draft_deadline_ms": 10000, "lookup": lookup}},
            "cache_dir": str(tmp_path),
        }
    )
    engine = ThreadedEngine(build_engine(config, "target"))
    async with running_stack(config, target_engine=engine, with_draft=place == "draft service") as stack:

        async def num_accepted(salt: str) -> int:
            """Of an answer whose text hardly repeats itself."""
            speculation = {"mode": pb.SPECULATION_MODE_ON, "proposer": proposer}
            answer: Answer = await stack.ask(
                speculation=speculation, max_tokens=80, temperature=1.0, seed=5, cache_salt=salt
            )
            return answer.origins.count(types_pb2.TOKEN_ORIGIN_ACCEPTED)

        alone = await num_accepted("")
        assert await num_accepted("") > 30
        for salt in ("mine", "yours"):
            assert await num_accepted(salt) <= alone + 5 < 30
            assert await num_accepted(salt) > 30
