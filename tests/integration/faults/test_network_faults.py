"""Bad networks between orchestrators and replicas: slower answers, never other ones."""

import itertools
import random

import pytest

from tests.support.conditions import Conditions
from tests.support.until import until

COUPLED = {"temperature": 0.9, "seed": 11}


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(delay_ms=2),
        Conditions(delay_ms=2, jitter_ms=20),
        Conditions(delay_ms=1, loss=0.02),
        Conditions(bandwidth_bytes_per_s=50_000),
    ],
    ids=["delay", "jitter", "loss", "bandwidth"],
)
async def test_delay_changes_no_text(cluster, conditions) -> None:
    orchestrator = await cluster.start(2, 2)
    for replica in cluster.replicas:
        replica.apply(conditions)
    calls = [orchestrator.ask(prompt, **COUPLED) for prompt in ("one", "two", "three", "four")]
    for call in calls:
        await call.finish()
    await cluster.nothing_is_left()


async def test_a_partition_between_one_of_two_orchestrators_and_one_of_two_targets(cluster) -> None:
    cut_off = await cluster.start(2, 1)
    other = await cluster.serve()
    victim, _ = cluster.targets()
    calls = [orchestrator.ask(prompt, **COUPLED) for orchestrator in (cut_off, other) for prompt in ("a", "b", "c")]
    for call in calls:
        await call.has_said(30)
    link = cut_off.links[victim.name]
    link.apply(Conditions(partitioned=True))
    for call in calls:
        await call.finish()
    # Its answers may have come to their end before anybody missed it.
    await until(lambda: not cut_off.is_connected(victim))
    assert other.is_connected(victim)
    # The replica notices, too, that one of its orchestrators is gone.
    await until(lambda: victim.num_held == 0)
    link.apply()
    await until(lambda: cut_off.is_connected(victim))
    await cluster.nothing_is_left()


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_partition_of_one_direction(cluster, direction) -> None:
    orchestrator = await cluster.start(2, 1)
    victim, _ = cluster.targets()
    calls = [orchestrator.ask(prompt, **COUPLED) for prompt in ("one", "two", "three", "four")]
    for call in calls:
        await call.has_said(30)
    victim.apply(Conditions(partitioned=True), direction)
    for call in calls:
        await call.finish()
    victim.apply()
    await until(lambda: orchestrator.is_connected(victim))
    await cluster.nothing_is_left()


async def test_connections_that_break_again_and_again(cluster) -> None:
    """With every twentieth token of all answers some link is reset."""
    orchestrator = await cluster.start(3, 2)
    dice = random.Random(5)
    calls = [orchestrator.ask(f"request {index}", **COUPLED) for index in range(8)]
    for num_said in itertools.takewhile(lambda number: number < 120, itertools.count(20, 20)):
        for call in calls:
            await call.has_said(min(num_said, 115))
        orchestrator.links[dice.choice(cluster.replicas).name].reset()
    for call in calls:
        await call.finish()
    await cluster.nothing_is_left()


async def test_connections_that_close_in_the_middle_of_a_frame(cluster) -> None:
    orchestrator = await cluster.start(2, 1)
    for replica in cluster.replicas:
        replica.apply(Conditions(close_after_bytes=3001), "down")
    for prompt in ("one", "two", "three"):
        await orchestrator.ask(prompt, **COUPLED).finish()
    for replica in cluster.replicas:
        replica.apply()
    await cluster.nothing_is_left()
