"""An EAGLE-3 head in the target reads what it would read of the whole text in one piece."""

import copy
import random
from collections.abc import Sequence

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.drafters.eagle3.draft import build_eagle3_head
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.messages import CloseSequence, Decode, OpenSequence
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.branching import branch
from pilotfish.speculation.trees.growth import GrowingTree
from pilotfish.types import SamplingParams, TreeRequest
from tests.support.engine_events import MakeCore, prompts

VOCAB = 64
GREEDY = SamplingParams(temperature=0, max_tokens=60)


class Reference:
    """EAGLE-3 drafting of a whole text at once, by the module itself."""

    def __init__(self, target: LlamaForCausalLM, module: Eagle3Head) -> None:
        self._target, self._module = target, module

    def draft(self, tokens: Sequence[int], num_tokens: int) -> list[int]:
        """The greedy chain."""
        drafts: list[int] = []
        for _ in range(num_tokens):
            drafts.append(int(self.logits(tokens, drafts).argmax()))
        return drafts

    def grow(self, tokens: Sequence[int], depth: int, request: TreeRequest) -> Drafts:
        """The greedy tree."""
        growing = GrowingTree(request.branching)
        for _ in range(depth):
            logits = torch.stack([self.logits(tokens, growing.path(node)) for node in growing.frontier])
            growing.extend(branch(logits, [Row(GREEDY, 0, None)] * len(logits), request.branching))
        grown = growing.finish(request.max_nodes)
        return Drafts(grown.token_ids, (), None if grown.tree.is_chain else grown.tree)

    def logits(self, tokens: Sequence[int], drafts: Sequence[int]) -> torch.Tensor:
        """[V] after the tokens and drafts, which the head has read with its own states."""
        module = self._module
        states = self._target(torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False).hidden_states
        features = torch.cat([states[layer][0] for layer in module.config.feature_layers], dim=-1)
        hidden = module.fuse(features[:-1])
        for length in range(len(tokens), len(tokens) + len(drafts) + 1):
            text = [*tokens, *drafts][:length]
            embeddings = self._target.get_input_embeddings()(torch.tensor(text[1:]))
            output, logits = module(embeddings, hidden, torch.arange(1, length))
            hidden = torch.cat((hidden, output[-1:]))
        spread = torch.full((VOCAB,), -torch.inf)
        spread[module.target_token_ids] = logits[-1]
        return spread


@pytest.mark.usefixtures("drafts_are_free")
@pytest.mark.parametrize("tree", [None, TreeRequest(max_nodes=10, branching=3)], ids=["chain", "tree"])
def test_the_head_sees_what_it_would_see_in_one_piece(
    make_core: MakeCore,
    tiny_llama: LlamaForCausalLM,
    eagle3_module: Eagle3Head,
    tree: TreeRequest | None,
) -> None:
    """Several sequences in a step; chunked prefills, rejected drafts, plain stretches, prefixes from the cache."""
    chance = random.Random(0)

    def make(decoder: TransformersDecoder) -> InTargetDrafter:
        decoder.capture(eagle3_module.config.feature_layers)
        return Eagle3Drafter(decoder, build_eagle3_head(decoder, copy.deepcopy(eagle3_module)), top_m=8)

    core = make_core(
        make,
        max_draft_tokens=12,
        kv_cache_tokens=chance.choice((160, 1024)),
        max_batch_tokens=chance.choice((13, 20, 48)),
    )
    reference = Reference(tiny_llama, eagle3_module)
    num_checked = 0
    for _ in range(2):
        for key, text in enumerate(prompts(0, 4)):
            core.submit(OpenSequence(key, tuple(text), GREEDY))
        for _ in range(3):  # stretches with and without drafts
            goals: dict[int, int] = {}
            for key, sequence in core._sequences.items():
                num_tokens = chance.randint(2, 9)
                goals[key] = len(sequence.tokens) + num_tokens
                core.submit(Decode(key, len(sequence.tokens), num_tokens, chance.choice((0, 3)), tree=tree))
            while core.has_work:
                core.step()
                for key, sequence in core._sequences.items():
                    drafts = sequence.drafts
                    if drafts and tree is None:
                        assert list(drafts.token_ids) == reference.draft(sequence.tokens, len(drafts))
                    elif drafts and tree is not None:
                        depth = min(3, goals[key] - len(sequence.tokens) - 1)
                        assert drafts == reference.grow(sequence.tokens, depth, tree)
                    num_checked += bool(drafts)
        for key in list(core._sequences):
            core.submit(CloseSequence(key))
    assert num_checked > 10


def test_before_the_first_token_no_draft_and_no_output_of_the_head_is_computed(
    make_core: MakeCore, eagle3_module: Eagle3Head
) -> None:
    """Of a prompt of three steps the head has taken in two by then, their keys and values alone."""
    events: list[str] = []

    class Watched:
        def __init__(self, head) -> None:
            self._head = head

        def __getattr__(self, name: str):
            return getattr(self._head, name)

        def forward(self, step):
            events.append(f"head: {len(step.token_ids)} rows, {len(step.logit_rows)} outputs")
            return self._head.forward(step)

    def make(decoder: TransformersDecoder) -> InTargetDrafter:
        decoder.capture(eagle3_module.config.feature_layers)
        return Eagle3Drafter(decoder, Watched(build_eagle3_head(decoder, copy.deepcopy(eagle3_module))), top_m=8)

    core = make_core(make, max_draft_tokens=4, max_batch_tokens=16)
    core.send_first = lambda _: events.append("first token")
    core.submit(OpenSequence(1, tuple(range(40)), GREEDY))
    core.submit(Decode(1, 40, 4, 2))
    while core.has_work:
        core.step()
    assert events[:4] == [
        "head: 15 rows, 0 outputs",
        "head: 16 rows, 0 outputs",
        "first token",
        "head: 9 rows, 1 outputs",
    ]
