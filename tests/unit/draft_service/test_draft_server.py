import socket
from collections.abc import AsyncIterator

import pytest

from draft_service.server import start_draft
from pilotfish.config import Config, DraftConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.errors import UnavailableError
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Proposal, Propose, SequenceError
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.types import SamplingParams, SequenceErrorCode
from tests.support.peer import RecordingPeer

CONFIG = Config(draft=DraftConfig(port=0))
OPEN = OpenSequence(1, (1, 2, 3), SamplingParams(temperature=0))


@pytest.fixture
async def engine() -> EmulatedEngine:
    return EmulatedEngine("draft")


@pytest.fixture
async def server(engine: EmulatedEngine) -> AsyncIterator[ReplicaServer]:
    server = await start_draft(CONFIG, engine=engine)
    yield server
    await server.drain_and_stop(0)


async def test_proposes(server: ReplicaServer, engine: EmulatedEngine) -> None:
    async with RecordingPeer(server.address, "draft") as peer:
        assert peer.stream.model.proposer == "emulated"
        # A draft stream has no Opened: the first answer is the proposal.
        proposal = await peer.ask(OPEN, Propose(1, 3, (), 4))
        assert isinstance(proposal, Proposal)
        assert (proposal.sequence_id, proposal.base_length, len(proposal.draft_token_ids)) == (1, 3, 4)
        again = await peer.ask(Propose(1, 5, (9, 9), 2))
        assert isinstance(again, Proposal)
        assert again.base_length == 5
        assert engine.num_sequences == 1
        peer.send(CloseSequence(1))
        assert isinstance(await peer.ask(Propose(1, 5, (), 2)), SequenceError)
        assert engine.num_sequences == 0


async def test_tokens_that_are_missing_are_asked_for(server: ReplicaServer, engine: EmulatedEngine) -> None:
    async with RecordingPeer(server.address, "draft") as peer:
        error = await peer.ask(OPEN, Propose(1, 9, (1,), 2))
        assert isinstance(error, SequenceError)
        assert (error.code, error.base_length) == (SequenceErrorCode.UNKNOWN_SEQUENCE, 9)
        # The peer opens it again under the same id.
        assert isinstance(await peer.ask(OPEN, Propose(1, 3, (), 2)), Proposal)
        assert engine.num_sequences == 1


async def test_a_drafter_takes_no_targets_work(server: ReplicaServer) -> None:
    async with RecordingPeer(server.address, "draft") as peer:
        with pytest.raises(TypeError, match="a draft replica takes no Decode"):
            peer.send(Decode(1, 3, 1))
        assert isinstance(await peer.ask(OPEN, Propose(1, 3, (), 1)), Proposal)


async def test_a_port_in_use_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draft_service.server.start_proposer", lambda _: pytest.fail("a proposer is started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config(draft=DraftConfig(port=taken.getsockname()[1]))
        with pytest.raises(UnavailableError, match=r"the port is in use.*draft\.port=PORT"):
            await start_draft(config)
