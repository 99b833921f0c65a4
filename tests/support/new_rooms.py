"""What asks the registry knows a new drafter: `python -m tests.support.new_rooms FOLDER`.

On PYTHONPATH is a Pilotfish whose registry has the lookup `echo` and the head `guess`. FOLDER: a model's, without
weights.
"""

import asyncio
import sys
from typing import Any, cast

from draft_service.server import start_draft
from orchestrator.requests.request import PROPOSERS as IN_REQUESTS
from pilotfish.bench.proposers import PROPOSERS as IN_BENCHMARKS
from pilotfish.cli.speculative_config import speculative_settings
from pilotfish.config import config_from_dict
from pilotfish.drafter_registry import METHODS
from pilotfish.engine.process.factory import build_in_target_drafter
from pilotfish.messages import OpenSequence, Proposal, Propose
from pilotfish.types import SamplingParams
from tests.support.peer import RecordingPeer


async def served(folder: str) -> None:
    replica = await start_draft(config_from_dict({"draft": {"port": 0, "proposer": "echo", "model": folder}}))
    async with RecordingPeer(replica.address, "draft") as peer:
        assert peer.stream.model.proposer == "echo"
        opened = OpenSequence(1, (7, 8, 9, 7), SamplingParams(temperature=0))
        answer = await peer.ask(opened, Propose(1, 4, (), 2))
        assert isinstance(answer, Proposal)
        assert answer.draft_token_ids == (8, 9)
    await replica.drain_and_stop(0)


def in_the_target(folder: str) -> None:
    def build(**drafter: str) -> Any:
        config = config_from_dict({"target": {"drafter": drafter}, "draft": {"top_m": 5}})
        return build_in_target_drafter(config, cast(Any, "loaded"), cast(Any, "decoder"))

    assert build(proposer="guess", lookup="none", model=folder) == ("guess", "loaded", "decoder", 5)
    assert build(proposer="none", lookup="echo").name == "echo"


def main() -> None:
    folder = sys.argv[1]
    assert {"echo", "guess"} <= set(IN_REQUESTS)
    assert {"echo", "echo-remote", "echo-in-target", "guess", "guess-remote", "guess-suffix"} <= set(IN_BENCHMARKS)
    assert "guess-tree" not in IN_BENCHMARKS
    assert speculative_settings('{"method": "guess", "model": "/x"}') == {
        "target.drafter.proposer": "guess",
        "target.drafter.model": "/x",
    }
    assert METHODS["guess"] == "guess"
    in_the_target(folder)
    asyncio.run(served(folder))
    print("known everywhere")


if __name__ == "__main__":
    main()
