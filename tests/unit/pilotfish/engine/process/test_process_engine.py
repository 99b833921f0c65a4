"""The client of an engine process, with the emulated worker on the other side of the socket."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psutil
import pytest

from pilotfish.config import Config, DraftConfig, EngineConfig, TargetConfig
from pilotfish.engine.process import process_engine as process
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.engine.process.wire import framed
from pilotfish.errors import ModelNotFoundError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import CloseSequence, Decode, Event, Opened, OpenSequence, Verdict
from pilotfish.types import SamplingParams

WORKER = "tests.support.emulated_worker"
GREEDY = SamplingParams(temperature=0, max_tokens=10_000)


@pytest.fixture(autouse=True)
def _where_the_worker_is_found(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.chdir(pytestconfig.rootpath)


@pytest.fixture
async def engine() -> AsyncIterator[ProcessEngine]:
    config = Config(target=TargetConfig(engine=EngineConfig(max_draft_tokens=7)))
    engine = await ProcessEngine.start(config, "target", worker_module=WORKER)
    yield engine
    await engine.close()


async def events(engine: ProcessEngine, count: int) -> list[Event]:
    found: list[Event] = []
    while len(found) < count:
        found += await engine.receive()
    return found


async def until_idle(engine: ProcessEngine) -> None:
    """Until the engine has come to what was sent last: the end of its sequence."""
    while engine.load.num_sequences_running or not engine.load.num_kv_blocks_total:
        # Answered with an error, and the load: all else may have come and gone in one read, without an event.
        engine.send([Decode(2, 1, 1)])
        await engine.receive()


def send_without_end(engine: ProcessEngine) -> None:
    while True:
        engine.send([OpenSequence(1, tuple(range(1000)), GREEDY)])


async def test_commands_and_events_cross(engine: ProcessEngine) -> None:
    assert engine.model.emulated
    assert engine.limits.max_draft_tokens == 7
    engine.send([OpenSequence(1, (1, 2), GREEDY), Decode(1, 2, 3)])
    opened, *verdicts = await events(engine, 4)
    assert opened == Opened(1, 0)
    assert all(isinstance(verdict, Verdict) for verdict in verdicts)
    assert engine.load.num_sequences_running == 1
    engine.send([OpenSequence(sequence_id, (1, 2), GREEDY) for sequence_id in range(2, 10)])
    await events(engine, 8)
    lengths = dict.fromkeys(range(2, 10), 2)
    for _ in range(100):  # many batches lose nothing
        for sequence_id, length in lengths.items():
            engine.send([Decode(sequence_id, length, 1)])
        for event in await events(engine, 8):
            lengths[event.sequence_id] += 1
    assert set(lengths.values()) == {102}


async def test_an_engine_that_does_not_read_is_noticed(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_UNREAD_BYTES", 1 << 20)
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ResourceExhaustedError, match="does not read"):
            send_without_end(engine)
        engine.send([CloseSequence(1)])
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    monkeypatch.undo()
    await until_idle(engine)


async def test_nonsense_from_the_engine_ends_it(engine: ProcessEngine) -> None:
    engine.data_received(framed(b"nonsense"))
    with pytest.raises(UnavailableError, match="talks nonsense"):
        await engine.receive()


async def test_death_is_noticed_and_told(engine: ProcessEngine) -> None:
    """With its last words, whatever came before: where nobody reads its standard error, it blocks in a log line."""
    engine._child.pipe_data_received(2, b"x" * 200_000 + b"\nlast words\n")
    waiting = asyncio.create_task(engine.receive())
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(UnavailableError, match=r"the engine process was killed by signal 9.*last words"):
        await waiting
    with pytest.raises(UnavailableError, match="signal 9"):
        engine.send([])


async def test_an_engine_that_hangs_is_ended_and_told() -> None:
    config = Config(target=TargetConfig(engine=EngineConfig(step_timeout_s=1)))
    engine = await ProcessEngine.start(config, "target", worker_module=WORKER)
    try:
        os.kill(engine.pid, signal.SIGSTOP)
        with pytest.raises(UnavailableError, match=r"hangs: it has said nothing for 1 s \(engine\.step_timeout_s\)"):
            await engine.receive()
        assert await engine._child.wait() == -signal.SIGKILL
    finally:
        await engine.close()


async def test_an_engine_that_is_never_ready_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "START_TIMEOUT_S", 0.0)
    before = set(psutil.Process().children())
    with pytest.raises(UnavailableError, match="not ready after 0 s"):
        await ProcessEngine.start(Config(), "target", worker_module=WORKER)
    assert set(psutil.Process().children()) <= before


async def test_a_failed_start_raises_what_the_engine_raised() -> None:
    config = Config(draft=DraftConfig(model="fail:ModelNotFoundError"))  # the role decides the section
    with pytest.raises(ModelNotFoundError, match="told to fail"):
        await ProcessEngine.start(config, "draft", worker_module=WORKER)


async def test_a_worker_that_cannot_even_start_is_quoted() -> None:
    with pytest.raises(UnavailableError, match=r"ended with status 1: .*No module named pilotfish\.nonesuch"):
        await ProcessEngine.start(Config(), "target", worker_module="pilotfish.nonesuch")


async def test_starting_does_not_hold_the_loop_and_closing_ends_the_process() -> None:
    starting = asyncio.create_task(ProcessEngine.start(Config(), "target", worker_module=WORKER))
    num_turns = 0
    while not starting.done():  # counting turns is the point
        await asyncio.sleep(0)
        num_turns += 1
    assert num_turns > 100
    engine = starting.result()
    for _ in range(2):
        await engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(engine.pid, 0)
    with pytest.raises(UnavailableError, match="was closed"):
        await engine.receive()


async def test_a_cancelled_start_leaves_nothing() -> None:
    this = psutil.Process()
    before = set(this.children())
    num_descriptors = this.num_fds()
    starting = asyncio.create_task(ProcessEngine.start(Config(), "target", worker_module=WORKER))
    while set(this.children()) == before:  # noqa: ASYNC110  # a child has no event
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait((starting,))
    assert starting.cancelled()
    # Servers of tests that ran before may close theirs meanwhile.
    assert set(this.children()) <= before
    assert this.num_fds() <= num_descriptors
