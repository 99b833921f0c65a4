"""Any commands in any order, against a decoder whose cache tells on every block that is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from pilotfish.config import EngineConfig
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.errors import InvalidRequestError
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    OpenSequence,
    Predrafted,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.models.decoder import StepInput
from pilotfish.rpc.replica.validation import check_command
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import BLOCK_SIZE, ModelInfo, SamplingParams, SequenceErrorCode, TreeRequest

VOCAB = 8
CONTEXT = 96
MAX_DRAFTS = 6


def extend(digest: int, token_ids: Iterable[int]) -> int:
    """A digest of all tokens so far."""
    for token_id in token_ids:
        digest = hash((digest, token_id))
    return digest


def next_token(digest: int) -> int:
    return random.Random(digest).randrange(VOCAB)


class ChainDecoder:
    """Its KV cache holds, in each slot, the digest of the tokens up to there; logits depend on that alone."""

    name = "chain"
    vocab_size = VOCAB
    max_context_tokens = CONTEXT
    dtype = torch.float32
    device = torch.device("cpu")

    def allocate(self, num_blocks: int) -> ChainDecoder:
        self.num_blocks = self.num_bytes = num_blocks
        self.slots: dict[int, tuple[int, int, int]] = {}  # digest before, token, digest
        return self

    def forward(self, step: StepInput) -> Tensor:
        digests = []
        for part in step.slices:
            num_nodes = len(part.tree) if part.tree else 0
            root = part.first_position + part.num_rows - 1 - num_nodes
            depths, seen = [], [0]  # digests before position 0, after it, ...
            for position in range(part.first_position + part.num_rows):
                slot = part.block_ids[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
                assert slot >= BLOCK_SIZE, "block 0 is nobody's"
                before, depth = position, 0  # of a text: the token before it
                if position > root:
                    parent = part.tree.parents[position - root - 1]
                    before = root + 2 + parent
                    depth = 1 if parent < 0 else depths[parent] + 1
                    depths.append(depth)
                if position >= part.first_position:
                    row = part.first_row + position - part.first_position
                    assert step.positions[row] == (root + depth if depth else position)
                    token_id = step.token_ids[row]
                    self.slots[slot] = (seen[before], token_id, extend(seen[before], (token_id,)))
                    digests.append(self.slots[slot][2])
                assert self.slots[slot][0] == seen[before], "a cached block holds another text"
                seen.append(self.slots[slot][2])
        logits = torch.zeros(len(step.logit_rows), VOCAB)
        for index, row in enumerate(step.logit_rows):
            logits[index, next_token(digests[row])] = 5.0
        return logits

    def move_kv(self, moves: list[tuple[int, int]]) -> None:
        held = [self.slots[source] for source, _ in moves]
        for (_, target), value in zip(moves, held, strict=True):
            assert target >= BLOCK_SIZE, "block 0 is nobody's"
            self.slots[target] = value


def continuation(tokens: Iterable[int], num_tokens: int) -> list[int]:
    digest = extend(0, tokens)
    output = []
    for _ in range(num_tokens):
        output.append(next_token(digest))
        digest = extend(digest, output[-1:])
    return output


class Peer:
    """Sends what a peer may send, sensible or not, and checks what comes back."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        config = EngineConfig(
            max_sequences=5,
            kv_cache_tokens=self.random.choice((64, 96, 160, 512)),
            max_batch_tokens=self.random.choice((7, 9, 33)),
            max_draft_tokens=MAX_DRAFTS,
        )
        info = ModelInfo(model_id="chain", tokenizer_fingerprint="", vocab_size=VOCAB, max_context_tokens=CONTEXT)
        self.core = EngineCore(ChainDecoder(), config, info)
        self.is_drafter = self.random.random() < 0.5
        self.texts: dict[int, list[int]] = {}
        self.prompt_lengths: dict[int, int] = {}
        self.drafts: dict[int, list[int]] = {}
        self.num_results = self.num_refusals = self.num_going_on = 0

    def submit(self, command: Command | None = None) -> None:
        before = {sequence_id: list(tokens) for sequence_id, tokens in self.texts.items()}
        command = command or self._command()
        try:
            check_command(command, self.core.model, self.core.limits)
            self.core.submit(command)
            is_refused = False
        except InvalidRequestError:  # by a replica, before its engine sees it
            is_refused = True
        refusals = [event for event in self.core._pending_events if isinstance(event, SequenceError)]
        if (is_refused or len(refusals) > self.num_refusals) and command.sequence_id in before:
            self.texts[command.sequence_id] = before[command.sequence_id]  # what was refused was not taken
        self.num_refusals = len(refusals)
        self.forget_lost()

    def step(self) -> None:
        self.num_refusals = 0
        events = self.core.step()
        if self.texts and not self.is_drafter:  # comes during the step
            sequence_id = self.random.choice(list(self.texts))
            self.submit(self._prepare(sequence_id, len(self.texts[sequence_id]), self.texts[sequence_id]))
        for event in self.core.go_on(events):
            self._check(event)
        self.forget_lost()

    def forget_lost(self) -> None:
        """Sequences that the engine refused, ended or failed."""
        for sequence_id in set(self.texts).difference(self.core._sequences):
            del self.texts[sequence_id]

    def _command(self) -> Command:
        sequence_id = self.random.randrange(7)
        tokens = self.texts.get(sequence_id)
        kind = self.random.random()
        if tokens is None:
            # Few prefixes, so that they are shared.
            prompt = ([self.random.randrange(2)] * 40)[: self.random.randrange(42)]
            output = [self.random.randrange(VOCAB) for _ in range(self.random.choice((0, 0, 3)))]
            self.texts[sequence_id], self.prompt_lengths[sequence_id] = [*prompt, *output], len(prompt)
            sampling = SamplingParams(temperature=0, max_tokens=self.random.choice((2, 30)), repetition_penalty=1.0001)
            return OpenSequence(sequence_id, tuple(prompt), sampling, tuple(output))
        if kind < 0.1:
            return CloseSequence(sequence_id)
        base = len(tokens) + self.random.choice((0, 0, 0, 0, 0, -1, 1, 50, -(10**6)))
        if self.is_drafter:
            return self._propose(sequence_id, tokens)
        if kind < 0.5:
            return Decode(sequence_id, base, self.random.choice((1, 5, 12, 0, -3, 2**40)))
        if kind < 0.75:
            return self._verify_tree(sequence_id, base, tokens)
        if kind < 0.85:
            return self._prepare(sequence_id, base, tokens)
        drafts = continuation(tokens, self.random.randrange(MAX_DRAFTS + 2))
        if drafts and self.random.random() < 0.5:
            drafts[self.random.randrange(len(drafts))] = self.random.randrange(VOCAB + 1)
        self.drafts[sequence_id] = drafts
        return Verify(sequence_id, base, tuple(drafts))

    def _prepare(self, sequence_id: int, base: int, tokens: list[int]) -> Predrafted:
        """For outcomes of the last verification, which may be over, the one that comes true among them or not."""
        drafts = self.drafts.get(sequence_id, [])
        said = continuation(tokens, len(drafts) + 1)
        numbers = [self.random.randint(0, len(drafts)), *range(len(drafts) + 1)]
        own = [self.random.randrange(VOCAB), *said]
        length = self.random.choice((0, 1, 3, MAX_DRAFTS, MAX_DRAFTS + 1))
        following = [
            token_id for number in numbers for token_id in continuation([*tokens, *said[: number + 1]], length)
        ]
        return Predrafted(sequence_id, base, tuple(drafts), tuple(numbers), tuple(own), tuple(following))

    def _verify_tree(self, sequence_id: int, base: int, tokens: list[int]) -> Verify:
        """Nodes under random parents, often what the target says there; now and then no tree at all."""
        parents: list[int] = []
        drafts: list[int] = []
        paths: list[list[int]] = []
        for node in range(self.random.randrange(1, MAX_DRAFTS + 2)):
            parent = self.random.randint(max(-1, node - 3), node - 1)
            path = paths[parent] if parent >= 0 else []
            is_right = self.random.random() < 0.6
            parents.append(parent)
            drafts.append(continuation([*tokens, *path], 1)[0] if is_right else self.random.randrange(VOCAB))
            paths.append([*path, drafts[-1]])
        if self.random.random() < 0.1:
            parents[self.random.randrange(len(parents))] = self.random.choice((-2, 0, 5))
        if self.random.random() < 0.05:
            parents.pop()
        return Verify(sequence_id, base, tuple(drafts), (), tuple(parents))

    def _propose(self, sequence_id: int, tokens: list[int]) -> Propose:
        """Go on from anywhere in the output: forth, back, the same again, with another text."""
        first = self.random.randint(min(self.prompt_lengths[sequence_id], len(tokens)), len(tokens))
        new = continuation(tokens[:first], self.random.randrange(6))
        if new and self.random.random() < 0.5:
            new[-1] = self.random.randrange(VOCAB)
        tokens[first:] = new
        depth = self.random.randrange(MAX_DRAFTS + 2)
        tree = None
        if self.random.random() < 0.5:
            tree = TreeRequest(self.random.randint(0, MAX_DRAFTS + 1), self.random.randint(0, 4))
        return Propose(sequence_id, len(tokens), tuple(new), depth, tree=tree)

    def _check(self, event: Event) -> None:
        tokens = self.texts.get(event.sequence_id)
        if isinstance(event, Verdict) and tokens is not None:
            assert event.base_length == len(tokens)
            assert event.token_ids
            assert list(event.token_ids) == continuation(tokens, len(event.token_ids))
            assert event.num_accepted_tokens <= event.depth <= event.num_draft_tokens
            tokens.extend(event.token_ids)
            self.num_results += 1
            self.num_going_on += event.num_next_draft_tokens > 0
        elif isinstance(event, Proposal) and tokens is not None and event.base_length == len(tokens):
            self.num_results += 1
            tree = DraftTree(event.parents or DraftTree.chain(len(event.draft_token_ids)).parents)
            said = [[event.draft_token_ids[node] for node in path] for path in tree.paths]
            # Each level expands what the text says next, which is by far the likeliest.
            assert continuation(tokens, tree.depth) in said
            assert len(set(map(tuple, said))) == len(said)
        elif not isinstance(event, Verdict | Proposal):
            assert getattr(event, "code", None) is not SequenceErrorCode.INTERNAL, event


@pytest.mark.parametrize("seed", range(16))
def test_nothing_breaks_leaks_or_mixes(seed: int) -> None:
    peer = Peer(seed)
    core = peer.core
    for _ in range(150):
        for _ in range(peer.random.randrange(4)):
            peer.submit()
        peer.step()
    for _ in range(5000):
        if not core.has_work:
            break
        peer.step()
    assert not core.has_work, "it comes to rest"
    assert peer.num_results > 0
    for sequence_id in range(7):
        core.submit(CloseSequence(sequence_id))
    assert core.kv_cache.pool.num_used == 0
    assert core.load().num_sequences_running + core.load().num_sequences_waiting == 0
