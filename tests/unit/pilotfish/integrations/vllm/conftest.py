"""A draft service on loopback, and the little of vLLM that a proposer is given."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from draft_service.lookup_engine import LookupEngine
from draft_service.server import start_draft
from orchestrator.replicas.mailbox import Receiver
from pilotfish.config import Config, load_config
from pilotfish.integrations.vllm.proposer import RemoteProposer
from pilotfish.messages import Command, Event, Proposal, Propose
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.types import Limits, ModelInfo
from tests.support.byte_tokenizer import save_lookup_folder
from tests.support.loop_thread import LoopThread
from tests.support.memory_replicas import MemoryLink

VOCAB_SIZE = 100
CONTEXT = 256
NUM_DRAFT_TOKENS = 4
PERIOD = (11, 12, 13, 14, 15)
"""What the rows of the tests repeat: a lookup foresees it."""
_PATIENCE_S = 60.0
_STEP_S = 0.002
"""Between looks at what comes about behind the engine."""
_LATE_S = 0.3
Fault = Literal["slow", "silent", "garbage"]
"""slow: everything comes late. silent: no proposal comes. garbage: token ids that no vocabulary has."""


class RecordingProposer(LookupEngine):
    """A lookup that keeps what it was told, a list for each frame's commands that came together, and may misbehave."""

    def __init__(self, model: ModelInfo, config: Config, fault: Fault | None, after_rounds: int) -> None:
        limits = Limits(max_draft_tokens=8, max_sequences=64)
        super().__init__(model, limits, lookup_of("ngram")(config.draft))
        self.batches: list[list[Command]] = []
        self._fault, self._num_sound_rounds = fault, after_rounds

    @property
    def commands(self) -> list[Command]:
        return [command for batch in self.batches for command in batch]

    def send(self, commands: Sequence[Command]) -> None:
        self.batches.append(list(commands))
        self._num_sound_rounds -= sum(isinstance(command, Propose) for command in commands)
        is_silent = self._fault == "silent" and self._num_sound_rounds < 0
        super().send([command for command in commands if not (is_silent and isinstance(command, Propose))])

    async def receive(self) -> Sequence[Event]:
        events = await super().receive()
        if self._fault == "slow":
            await asyncio.sleep(_LATE_S)
        return [self._spoilt(event) if self._fault == "garbage" else event for event in events]

    def _spoilt(self, event: Event) -> Event:
        if not isinstance(event, Proposal):
            return event
        return msgspec.structs.replace(event, draft_token_ids=(2**32 - 1,) * len(event.draft_token_ids))


class DraftPool:
    """One draft replica that can be stopped and started again at the same address."""

    def __init__(self, loop: LoopThread, fingerprint: str) -> None:
        self._loop = loop
        self.fingerprint = fingerprint
        self.port = 0
        self.feature_layers: tuple[int, ...] = ()
        self.server: ReplicaServer | None = None
        self.engine: RecordingProposer

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, fault: Fault | None = None, *, after_rounds: int = 0, **overrides: str) -> None:
        """after_rounds: drafts before it falls silent. overrides: of the configuration, `__` for the dot."""
        settings = [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()]
        config = load_config(overrides=[f"draft.port={self.port}", *settings])
        self._loop.run(self._start(config, fault, after_rounds))

    async def _start(self, config: Config, fault: Fault | None, after_rounds: int) -> None:
        model = ModelInfo(
            model_id="toy",
            tokenizer_fingerprint=self.fingerprint,
            vocab_size=VOCAB_SIZE,
            max_context_tokens=CONTEXT,
            proposer="ngram",
            feature_layers=self.feature_layers,
        )
        self.engine = RecordingProposer(model, config, fault, after_rounds)
        self.server = await start_draft(config, engine=self.engine)
        self.port = int(self.server.address.rpartition(":")[2])

    def frames_that_ask_on(self, length: int) -> list[list[Command]]:
        """Those with a Propose on so many committed tokens, once there is one: a step whose drafts were prepared does
        not wait until the replica has read its own."""
        end_s = time.monotonic() + _PATIENCE_S
        while not (frames := [frame for frame in self.engine.batches if _asks_on(length, frame)]):
            assert time.monotonic() < end_s, "nothing was asked"
            time.sleep(_STEP_S)
        return frames

    def stop(self) -> None:
        if self.server is not None:
            self._loop.run(self.server.drain_and_stop(0))
            self.server = None


def _asks_on(length: int, frame: Sequence[Command]) -> bool:
    return any(isinstance(command, Propose) and command.base_length == length for command in frame)


class Engine:
    """vLLM's rows as far as a proposer sees them: every step commits what PERIOD says."""

    def __init__(self, proposer: RemoteProposer, num_rows: int = 1) -> None:
        self.proposer = proposer
        self.token_ids = np.zeros((num_rows + 1, CONTEXT), dtype=np.int32)
        self.num_tokens = np.zeros(num_rows + 1, dtype=np.int32)
        self.drafts: list[list[int]] = [[] for _ in range(num_rows)]
        for row in range(num_rows):
            self.append(row, [row + 1, *PERIOD, *PERIOD])

    def append(self, row: int, token_ids: Sequence[int]) -> None:
        start = int(self.num_tokens[row])
        self.token_ids[row, start : start + len(token_ids)] = token_ids
        self.num_tokens[row] += len(token_ids)

    def truth(self, row: int, num_tokens: int) -> list[int]:
        """What the row says next."""
        start = int(self.num_tokens[row]) - 1
        return [PERIOD[(start + index) % len(PERIOD)] for index in range(num_tokens)]

    def step(self) -> list[list[int]]:
        """Verify the drafts of the step before, and have new ones."""
        sampled = []
        for row, draft in enumerate(self.drafts):
            truth = self.truth(row, len(draft) + 1)
            num_accepted = next((i for i, token in enumerate(draft) if token != truth[i]), len(draft))
            sampled.append(truth[: num_accepted + 1])
            self.append(row, sampled[-1])
        self.drafts = self.proposer.propose(sampled, self.num_tokens, self.token_ids)
        return self.drafts

    def steps_until(self, condition: Callable[[], object]) -> None:
        """Plain steps, as often as it takes: rows begin anew where they get too long."""
        end_s = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s, "it never came to that"
            if int(self.num_tokens.max()) > CONTEXT - 4 * NUM_DRAFT_TOKENS:
                self.num_tokens[:] = 0
                for row in range(len(self.drafts)):
                    self.append(row, [row + 1, *PERIOD, *PERIOD])
            self.drafts = [[] for _ in self.drafts]
            self.step()
            time.sleep(_STEP_S)


class FakeLink(MemoryLink):
    """Keeps what it is told; the test says what comes back."""

    address = "draft:1"

    def __init__(self) -> None:
        super().__init__("draft")
        self.model = msgspec.structs.replace(self.model, vocab_size=100, max_context_tokens=64, proposer="model")
        self.limits = Limits(max_draft_tokens=8, max_sequences=8)
        self.mailbox: Receiver | None = None

    def new_sequence_id(self) -> int:
        return 7

    def attach(self, sequence_id: int, receiver: Receiver) -> None:
        self.mailbox = receiver

    def detach(self, sequence_id: int) -> None:
        self.mailbox = None

    def send(self, command: Command) -> None:
        self.commands.append(command)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_lookup_folder(folder, VOCAB_SIZE)
    return folder


@pytest.fixture
def pool(tokenizer_folder: Path) -> Iterator[DraftPool]:
    loop = LoopThread(timeout_s=30)
    pool = DraftPool(loop, tokenizer_fingerprint(tokenizer_folder))
    yield pool
    pool.stop()
    loop.close()


@pytest.fixture
def make_proposer(tokenizer_folder: Path) -> Iterator[Callable[..., RemoteProposer]]:
    """RemoteProposer as vLLM makes it, with settings of ours."""
    made: list[RemoteProposer] = []

    def make(address: str, **settings: Any) -> RemoteProposer:
        section = {"draft_addresses": [address], "draft_deadline_ms": 2000, **settings}
        vllm_config = SimpleNamespace(
            speculative_config=SimpleNamespace(num_speculative_tokens=NUM_DRAFT_TOKENS),
            additional_config={"pilotfish": section},
            parallel_config=SimpleNamespace(tensor_parallel_size=1),
            model_config=SimpleNamespace(
                model="toy", tokenizer=str(tokenizer_folder), tokenizer_revision=None, get_vocab_size=lambda: VOCAB_SIZE
            ),
        )
        proposer = RemoteProposer(vllm_config)
        made.append(proposer)
        return proposer

    yield make
    for proposer in made:
        proposer.close()


@pytest.fixture
def make_engine() -> type[Engine]:
    return Engine


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()
