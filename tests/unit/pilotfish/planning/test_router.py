from __future__ import annotations

from typing import Any, cast

from pilotfish.planning.replica import Replica
from pilotfish.planning.router import LeastLoaded


class StubReplica:
    def __init__(self) -> None:
        self.num_kv_tokens = 0


def replicas(number: int) -> list[Replica]:
    return [cast(Any, StubReplica()) for _ in range(number)]


def test_the_one_that_holds_the_fewest_is_picked() -> None:
    first, second = pair = replicas(2)
    router = LeastLoaded(pair, max_sequences=2, kv_cache_tokens=100)
    router.moved(first, before=0, now=1)
    assert router.pick(1) is second
    router.moved(second, before=0, now=1)
    router.moved(second, before=1, now=2)
    assert router.pick(1) is first
    router.moved(first, before=1, now=2)
    assert router.pick(1) is None
    router.moved(second, before=2, now=1)
    assert router.pick(1) is second


def test_one_whose_cache_is_full_is_not_picked() -> None:
    (replica,) = replicas(1)
    replica.num_kv_tokens = 60
    router = LeastLoaded([replica], max_sequences=2, kv_cache_tokens=100)
    assert router.pick(40) is replica
    assert router.pick(41) is None
