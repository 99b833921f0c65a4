"""A drafter of another vocabulary, translated: the output has the target's distribution."""

from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from draft_service.translation.method import Method
from draft_service.translation.sequence import TranslatedSequence
from draft_service.translation.vocabularies import Vocabularies
from pilotfish.messages import OpenSequence, Proposal, Propose, UseVocabulary
from pilotfish.models.store.folder import ModelMetadata
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.shared_vocabulary import SharedVocabulary
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams

LETTERS = "abcdefghij"


def tokenizer(letters: str, pairs: tuple[str, ...]) -> Tokenizer:
    """A token for each letter, in this order, and for each pair of letters."""
    vocabulary = {token: token_id for token_id, token in enumerate((*letters, *pairs))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(pair) for pair in pairs]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    metadata = ModelMetadata(
        model_type="none",
        vocab_size=len(vocabulary),
        max_context_tokens=64,
        eos_token_ids=frozenset(),
        config={},
    )
    return Tokenizer(backend, metadata, None, letters, Path())


VOCABULARIES = Vocabularies(tokenizer(LETTERS, ("ab", "cd")), tokenizer(LETTERS[::-1], ("ef",)))
"""Both have the letters; two tokens are the target's alone, and one the drafter's."""
TABLE = torch.randn(11, 11, generator=torch.Generator().manual_seed(5)) * 2
"""The drafter's logits after each of its tokens."""
COMMON = VOCABULARIES.common()
assert COMMON is not None
SHARED = SharedVocabulary(COMMON.drafter_ids, COMMON.target_ids, TABLE.device)


def translated_drafts(method: Method, prompt: tuple[int, ...], num_tokens: int, table: Tensor = TABLE):
    """Drafts chains with the drafter's table, by way of the drafter's tokens."""

    def propose(samplings, positions, contexts):
        proposals = []
        for index, (sampling, position, context) in enumerate(zip(samplings, positions, contexts, strict=True)):
            command = OpenSequence(1, prompt, sampling, tuple(context))
            own_prompt = VOCABULARIES.drafter_prompt(prompt)
            sequence = TranslatedSequence(command, own_prompt, VOCABULARIES, method)
            opening = sequence.opening()
            request = sequence.request(Propose(1, len(prompt) + len(context), (), num_tokens), 8)
            tokens = [*opening.prompt_token_ids, *opening.output_token_ids]
            drafts, used = [], sequence.use() if method is Method.INTERSECTION else UseVocabulary(1)
            for offset in range(request.num_draft_tokens):
                if used.vocabulary:
                    # The target's noise; in rejection mode a draft's own, another for each sequence.
                    assert request.base_length + used.position_shift == len(prompt) + len(context)
                    row = Row(used.sampling, position + offset, None, draft_start=10_000 + index)
                    (drafted,) = map(SHARED.draft, draft(SHARED.in_target_ids(table[tokens[-1:]]), [row], 11))
                else:
                    row = Row(opening.sampling, position + offset, None)
                    (drafted,) = draft(table[tokens[-1:]], [row], 11)
                drafts.append(drafted)
                tokens.append(drafted.token_id)
            probs = tuple(drafted.probs for drafted in drafts if drafted.probs is not None)
            own = Proposal(1, request.base_length, tuple(drafted.token_id for drafted in drafts), probs)
            proposal = sequence.proposal(own)
            token_ids = list(proposal.draft_token_ids)
            proposals.append((token_ids, list(proposal.draft_probs), DraftTree.chain(len(token_ids))))
        return proposals

    return propose


@pytest.mark.parametrize("num_tokens", [1, 2])
@pytest.mark.parametrize("method", Method)
def test_rejection_has_the_targets_distribution(world, method: Method, num_tokens: int) -> None:
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION, temperature=0.8)
    drafter = translated_drafts(method, world.prompt, num_tokens)
    simulation = world.simulation(sampling, "good", tree_drafter=drafter, num_draws=6000)
    marginal, joint = world.p_values(simulation.run(), sampling)
    assert simulation.num_accepted > 100
    assert marginal > 1e-4
    assert joint > 1e-4


@pytest.mark.parametrize("method", Method)
def test_no_drafter_changes_a_seeded_token(world, method: Method) -> None:
    sampling = SamplingParams(temperature=0.8)
    plain = world.simulation(sampling, "good", num_draft_tokens=0, num_draws=2000).run()
    drafter = translated_drafts(method, world.prompt, 2)
    simulation = world.simulation(sampling, "good", tree_drafter=drafter, num_draws=2000)
    assert (simulation.run() == plain).all()
    assert simulation.num_accepted > 30


def test_shared_noise_is_worth_nearly_what_rejection_is(world) -> None:
    """The drafter knows the target's table, in tokens of its own: above temperature 0 the same noise chooses the same
    tokens far more often than the likeliest one is chosen."""
    table, target = torch.full((11, 11), -2.0), world.target_table()
    for drafter_id, target_id in VOCABULARIES.target_ids.items():
        for other_drafter_id, other_target_id in VOCABULARIES.target_ids.items():
            table[drafter_id, other_drafter_id] = target[target_id, other_target_id]
    shares = {}
    for name, method, acceptance in (
        ("coupled", Method.INTERSECTION, AcceptanceMode.COUPLED),
        ("rejection", Method.INTERSECTION, AcceptanceMode.REJECTION),
        ("likeliest", Method.TEXT, AcceptanceMode.COUPLED),
    ):
        sampling = SamplingParams(temperature=0.8, acceptance=acceptance)
        drafter = translated_drafts(method, world.prompt, 1, table)
        simulation = world.simulation(sampling, "good", tree_drafter=drafter, num_draws=2000, num_tokens=1)
        simulation.run()
        shares[name] = simulation.num_accepted / 2000
    assert shares["coupled"] > 0.9 * shares["rejection"]
    assert shares["coupled"] > shares["likeliest"] + 0.1
