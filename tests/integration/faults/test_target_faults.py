"""Whatever happens to one target replica: its requests go on elsewhere, and their texts are the undisturbed ones."""

import asyncio

import msgspec

from pilotfish.messages import Verdict
from pilotfish.rpc.v1 import inference_pb2 as pb
from tests.support.until import until

OFF = pb.SPECULATION_MODE_OFF
COUPLED = {"temperature": 0.9, "seed": 11}
MANNERS = ({"temperature": 0, "mode": OFF}, {"temperature": 0}, {**COUPLED, "mode": OFF}, COUPLED)


async def ask_all(orchestrator, *targets):
    """Requests of all manners, in the middle of their answers, until each of the targets has some."""
    calls = []
    # Once is enough, unless this machine stands still for a second: then all streams are lost to keepalive, and all
    # requests go to the target that is back first.
    while not calls or not all(target.engine.num_sequences for target in targets):
        asked = [orchestrator.ask(prompt, **manner) for prompt in ("one", "two") for manner in MANNERS]
        for call in asked:
            await call.has_said(30)
        calls += asked
    return calls


async def test_requests_survive_what_happens_to_their_target(cluster, fault) -> None:
    orchestrator = await cluster.start(2, 1)
    victim, other = cluster.targets()
    calls = await ask_all(orchestrator, victim, other)
    assert victim.engine.num_sequences > 0
    assert other.engine.num_sequences > 0
    await victim.suffer(fault)
    for call in calls:
        await call.finish()
    if not victim.is_running:
        await victim.start()
    victim.apply()
    await until(lambda: orchestrator.is_connected(victim))
    await cluster.nothing_is_left()
    calls = await ask_all(orchestrator, victim)
    for call in calls:
        await call.finish()
    await cluster.nothing_is_left()


async def test_requests_leave_a_target_that_talks_nonsense(cluster, monkeypatch) -> None:
    orchestrator = await cluster.start(2, 1)
    victim, other = cluster.targets()
    calls = await ask_all(orchestrator, victim, other)
    receive, said = victim.engine.receive, []

    async def receive_nonsense():
        events = await receive()
        said.extend(event for event in events if isinstance(event, Verdict))
        return [
            msgspec.structs.replace(event, token_ids=(10**6,)) if isinstance(event, Verdict) else event
            for event in events
        ]

    monkeypatch.setattr(victim.engine, "receive", receive_nonsense)
    for call in calls:
        await call.finish()
    assert said
    await cluster.nothing_is_left()


async def test_requests_wait_for_their_only_target_to_come_back(cluster) -> None:
    orchestrator = await cluster.start(1, 1)
    (target,) = cluster.targets()
    for _ in range(2):
        calls = await ask_all(orchestrator)
        await target.kill()
        late = orchestrator.ask("asked while there is no target")
        await target.start()
        for call in (*calls, late):
            await call.finish()
        await cluster.nothing_is_left()


async def test_requests_leave_a_target_that_drains_while_they_are_answered(cluster) -> None:
    orchestrator = await cluster.start(2, 1)
    victim, other = cluster.targets()
    calls = [orchestrator.ask(prompt, **manner, max_tokens=1500) for prompt in ("one", "two") for manner in MANNERS]
    for call in calls:
        await call.has_said(30)
    assert victim.engine.num_sequences > 0
    await victim.drain()
    await until(lambda: other.engine.num_sequences == len(calls))  # none has come to its end on the way
    for call in calls:
        await call.finish()
    assert orchestrator.server.service.statistics.totals.num_failovers == 0
    await cluster.nothing_is_left()


async def test_a_rolling_update_fails_no_request(cluster) -> None:
    """Each of two replicas is replaced: a new one comes, the old one leaves the directory and drains."""
    orchestrator = await cluster.start(2, 1)
    old = cluster.targets()
    finished = []

    async def keep_asking(index: int) -> None:
        while any(replica.is_running for replica in old) or len(finished) < 40:
            call = orchestrator.ask(f"request {len(finished)} of {index}", **COUPLED, max_tokens=60)
            await call.finish()
            finished.append(call)

    asking = [asyncio.create_task(keep_asking(index)) for index in range(6)]
    for replica in old:
        new = await cluster.add("target")
        await until(lambda new=new: orchestrator.is_connected(new))
        orchestrator.forget(replica)
        await replica.drain()
    await asyncio.gather(*asking)
    assert len(finished) >= 40
    assert all(replica.num_held == 0 for replica in old)
    await cluster.nothing_is_left()


async def test_a_target_that_comes_back_with_another_model_is_left_out(cluster) -> None:
    orchestrator = await cluster.start(2, 0)
    victim, _ = cluster.targets()
    calls = await ask_all(orchestrator)
    await victim.kill()
    await victim.start(model_name="another")
    for call in calls:
        await call.finish()
    await until(lambda: "another" in orchestrator.replica_link(victim).problem)
    assert not orchestrator.is_connected(victim)
    for call in await ask_all(orchestrator):
        await call.finish()
    assert victim.engine.num_sequences == 0
    await cluster.nothing_is_left()


async def test_an_engine_that_dies_behind_a_living_front_is_left(cluster) -> None:
    orchestrator = await cluster.start(2, 1)
    victim, _ = cluster.targets()
    calls = await ask_all(orchestrator)
    victim.engine.die()
    for call in calls:
        await call.finish()
    await victim.kill()
    await cluster.nothing_is_left()
