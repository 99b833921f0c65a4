"""Whatever a client asks for, it gets the same answer with speculation as without.

`benchmarks/conformance.py` asks the same of every proposer, and of other servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.bench.proposers import PROPOSERS
from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from tests.support.conformance import CASES, Server, difference

ARMS = {
    # In the target: the shipped head behind a lookup, in chains; in the draft service, in trees.
    "eagle3-suffix": PROPOSERS["eagle3-suffix"].with_model("smollm2-135m-instruct-eagle3"),
    "suffix-remote-tree": PROPOSERS["suffix-remote-tree"],
}


TIGHT_CACHE = "target.engine.kv_cache_tokens=1280"
"""Tokens: fewer than the requests of the case `preemption` have together."""


@pytest.fixture(scope="module", params=ARMS)
def servers(request: pytest.FixtureRequest, default_model: Path) -> Iterator[tuple[Server, Server]]:
    """Without and with speculation."""
    arm = ARMS[request.param]
    with LocalStack(load_config(overrides=(*arm.overrides, TIGHT_CACHE))) as stack:
        yield (
            Server(stack.http_url, {"speculation": {"mode": "off"}}),
            Server(stack.http_url, {"speculation": {"mode": "on", "proposer": arm.request_name}}),
        )


@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_the_same_with_speculation(servers: tuple[Server, Server], case: str) -> None:
    plain, drafted = servers
    assert difference(CASES[case](plain), CASES[case](drafted)) == ""
