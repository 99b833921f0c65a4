"""Whatever a client asks for, it gets the same answer with speculation as without.

`benchmarks/conformance.py` asks every case of every proposer, and of other servers.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from tests.support.conformance import CASES, TIGHT_CACHE, Server, difference

SETTINGS = (
    *("target.drafter.proposer=eagle3", "target.drafter.lookup=suffix", "draft.proposer=suffix"),
    "orchestrator.speculation.tree_nodes=16",
    "target.engine.num_threads=1",
    TIGHT_CACHE,
)
PROPOSERS = ("eagle3", "draft", "ngram")
"""Trees in the target, trees from the draft service, chains from the orchestrator. They take turns with the cases."""
WITH_EVERY_PROPOSER = ("stop in a block", "JSON schema")


@pytest.fixture(scope="module")
def url(default_model: Path) -> Iterator[str]:
    with LocalStack(load_config(overrides=SETTINGS)) as stack:
        yield stack.http_url


@cache
def plain_answers(url: str, case: str) -> list[Any]:
    return CASES[case](Server(url, {"speculation": {"mode": "off"}}))


@pytest.mark.parametrize(
    ("case", "proposer"),
    [
        (case, proposer)
        for number, case in enumerate(CASES)
        for proposer in (PROPOSERS if case in WITH_EVERY_PROPOSER else PROPOSERS[number % 3 :][:1])
    ],
)
def test_an_answer_is_the_same_with_speculation(url: str, case: str, proposer: str) -> None:
    drafted = Server(url, {"speculation": {"mode": "on", "proposer": proposer}})
    assert difference(plain_answers(url, case), CASES[case](drafted)) == ""
