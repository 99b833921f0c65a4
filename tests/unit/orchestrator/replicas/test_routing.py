import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from orchestrator.replicas.routing import LeastLoadedRouter, PrefixAwareRouter
from pilotfish.config import RoutingConfig
from pilotfish.types import BLOCK_SIZE, LoadReport

SYSTEM = tuple(range(8 * BLOCK_SIZE))


@dataclass
class FakeReplica:
    replica_id: str
    num_sequences: int = 0
    num_other_sequences: int = 0
    load: LoadReport = field(default_factory=LoadReport)


def with_kv_usage(num_used: int) -> LoadReport:
    return LoadReport(num_kv_blocks_used=num_used, num_kv_blocks_total=100)


@pytest.fixture
def router() -> PrefixAwareRouter:
    return PrefixAwareRouter(RoutingConfig(), random.Random(0))


def send(router, replicas, tokens):
    prefix = router.prefix(tokens)
    replica = router.choose(replicas, prefix)
    router.record(replica, prefix, is_new=True)
    return replica


def test_sequences_of_all_orchestrators_count_as_load() -> None:
    replicas = [FakeReplica("a", 3, 0), FakeReplica("b", 1, 5), FakeReplica("c", 2, 2)]
    router = LeastLoadedRouter(random.Random(0))
    assert router.choose(replicas, ()).replica_id == "a"
    assert router.choose([], ()) is None
    router.record(replicas[0], (), is_new=True)
    assert router.counters.num_by_load == 1


def test_of_equally_loaded_replicas_the_one_with_free_memory_then_any() -> None:
    router = LeastLoadedRouter(random.Random(0))
    replicas = [FakeReplica("a", load=with_kv_usage(50)), FakeReplica("b", load=with_kv_usage(10))]
    assert router.choose(replicas, ()).replica_id == "b"
    equal = [FakeReplica(name) for name in "abc"]
    chosen = Counter(router.choose(equal, ()).replica_id for _ in range(300))
    assert min(chosen.values()) > 50


@pytest.mark.parametrize("kind", [LeastLoadedRouter, PrefixAwareRouter])
def test_the_preferred_one_is_taken_among_equals_and_never_instead_of_a_better_one(kind) -> None:
    router = LeastLoadedRouter() if kind is LeastLoadedRouter else PrefixAwareRouter(RoutingConfig())
    equal = [FakeReplica(name) for name in "abc"]
    prefix = router.prefix(SYSTEM)
    assert {router.choose(equal, prefix, "b").replica_id for _ in range(20)} == {"b"}
    busier = [FakeReplica("a"), FakeReplica("b", num_sequences=1)]
    assert router.choose(busier, prefix, "b").replica_id == "a"


def test_a_conversation_stays_where_its_beginning_is_cached(router) -> None:
    replicas = [FakeReplica("a"), FakeReplica("b"), FakeReplica("c")]
    first = send(router, replicas, SYSTEM)
    first.num_sequences = 3
    answered = (*SYSTEM, *range(500, 500 + 4 * BLOCK_SIZE))
    router.record(first, router.prefix(answered), is_new=False)
    assert send(router, replicas, (*answered, 1, 2, 3)) is first
    assert router.counters.num_by_prefix == 1
    assert router.counters.num_by_load == 1
    assert router.counters.num_matched_blocks == 12


def test_a_short_overlap_is_not_worth_it(router) -> None:
    replicas = [FakeReplica("a", 2), FakeReplica("b", 1)]
    router.record(replicas[0], router.prefix(SYSTEM), is_new=True)
    long_prompt = (*SYSTEM, *range(1000, 1000 + 40 * BLOCK_SIZE))
    assert router.choose(replicas, router.prefix(long_prompt)).replica_id == "b"


@pytest.mark.parametrize(("num_there", "num_elsewhere", "expected"), [(8, 0, "a"), (9, 0, "b"), (38, 20, "a")])
def test_a_replica_that_is_too_busy_is_not_preferred(router, num_there, num_elsewhere, expected) -> None:
    """The limit is 1.5 times the least load plus 8."""
    replicas = [FakeReplica("a", num_there), FakeReplica("b", 0, num_elsewhere)]
    router.record(replicas[0], router.prefix(SYSTEM), is_new=True)
    assert router.choose(replicas, router.prefix(SYSTEM)).replica_id == expected


def test_a_replica_whose_memory_is_full_is_not_preferred(router) -> None:
    replicas = [FakeReplica("a", load=with_kv_usage(95)), FakeReplica("b", 5, load=with_kv_usage(40))]
    router.record(replicas[0], router.prefix(SYSTEM), is_new=True)
    router.record(replicas[1], router.prefix(SYSTEM[: 6 * BLOCK_SIZE]), is_new=True)
    assert router.choose(replicas, router.prefix(SYSTEM)).replica_id == "b"


def test_a_shared_system_prompt_does_not_pile_everything_on_one_replica(router) -> None:
    replicas = [FakeReplica("a"), FakeReplica("b"), FakeReplica("c")]
    for number in range(90):
        send(router, replicas, (*SYSTEM, *range(number, number + 20))).num_sequences += 1
    loads = [replica.num_sequences for replica in replicas]
    assert min(loads) >= 20
    assert router.counters.num_matched_blocks >= 8 * 80
