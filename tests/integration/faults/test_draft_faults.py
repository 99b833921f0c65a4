"""Whatever happens to draft replicas: no request fails, every text is the undisturbed one, and nothing stays held."""

import asyncio
import contextlib

from tests.support.conditions import Conditions
from tests.support.until import until

GREEDY, COUPLED = {"temperature": 0}, {"temperature": 0.9, "seed": 11}
STEPS = {"steps": {"level": "step", "step_max_tokens": 8, "step_threshold": 5}}


async def test_a_request_survives_what_happens_to_its_drafter(cluster, fault) -> None:
    orchestrator = await cluster.start(1, 1)
    (draft,) = cluster.drafts()
    calls = [orchestrator.ask(prompt, **sampling) for prompt in ("one", "two") for sampling in (GREEDY, COUPLED, STEPS)]
    for call in calls:
        await call.has_said(30)
    await draft.suffer(fault)
    for call in calls:
        summary = await call.finish()
        assert summary.speculation.num_rounds + summary.speculation.num_steps > 0
        assert bool(summary.speculation.num_steps) == summary.lossy
    if not draft.is_running:
        await draft.start()
    draft.apply()
    await until(lambda: orchestrator.is_connected(draft))
    await cluster.nothing_is_left()


async def test_what_is_no_replica_at_all_is_done_without(cluster) -> None:
    """A port that somebody else has taken meanwhile."""

    async def babble(reader, writer) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(b"220 mail.example.org ESMTP\r\n")
            await reader.read(100)
        writer.close()

    orchestrator = await cluster.start(1, 1)
    (draft,) = cluster.drafts()
    link = orchestrator.links[draft.name]
    stranger = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with stranger:
        call = orchestrator.ask()
        await call.has_said(20)
        await draft.kill()
        num_accepted = link.num_accepted
        link.redirect("{}:{}".format(*stranger.sockets[0].getsockname()))
        await call.finish()
        await until(lambda: link.num_accepted > num_accepted)
        assert (await orchestrator.ask().finish()).speculation.num_rounds == 0
        await draft.start()
        await until(lambda: orchestrator.is_connected(draft))
    assert (await orchestrator.ask().finish()).speculation.num_rounds > 0
    await cluster.nothing_is_left()


async def test_the_circuit_opens_on_a_slow_drafter_and_a_trial_closes_it(cluster) -> None:
    orchestrator = await cluster.start(1, 1, silence_timeout_s=30)  # it is slow, and on no machine silent
    (draft,) = cluster.drafts()
    link = orchestrator.replica_link(draft)
    assert (await orchestrator.ask().finish()).speculation.num_rounds > 0
    draft.apply(Conditions(delay_ms=600), "down")  # far beyond the deadline, far below silence
    while link.is_healthy:
        await orchestrator.ask().finish()
    assert link.is_connected
    assert "deadline" in link.problem
    # A trial, at most: an answer may take as long as the drafter is left alone.
    assert (await orchestrator.ask().finish()).speculation.num_rounds <= 1
    draft.apply()
    while link.problem:
        await until(lambda: link.is_healthy)
        await orchestrator.ask().finish()
    assert (await orchestrator.ask().finish()).speculation.num_rounds > 0
    await cluster.nothing_is_left()
