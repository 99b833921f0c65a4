"""Deliberately wrong rules, in the same simulation and the same test: each must be caught. That the right one is not:
test_lossless.py."""

from types import SimpleNamespace

import torch

from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.results import DraftToken
from pilotfish.speculation.sampling import coupling, rejection
from pilotfish.speculation.sampling.coupling import keys_of
from pilotfish.speculation.sampling.noise import Stream, uniform
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution

SAMPLING = SamplingParams(acceptance=AcceptanceMode.REJECTION)


def caught(world, simulation) -> bool:
    return min(world.p_values(simulation.run(), simulation.sampling)) < 1e-6


def draft_with_noise_of_acceptance(logits, rows, top_m):
    """Inverse-CDF sampling from the very uniform number that acceptance will use."""
    probs = logits.double().softmax(-1)
    noise = uniform(keys_of(rows, Stream.ACCEPT, logits.device), 1)
    token_ids = (probs.cumsum(-1) < noise).sum(-1).clamp(max=logits.shape[1] - 1).tolist()
    everything = tuple(range(logits.shape[1]))
    return [
        DraftToken(token_id, SparseDistribution(everything, tuple(row)))
        for token_id, row in zip(token_ids, probs.tolist(), strict=True)
    ]


def test_noise_shared_by_drafting_and_accepting_is_caught(world):
    assert caught(world, world.simulation(SAMPLING, "good", draft_function=draft_with_noise_of_acceptance))


def test_noise_shared_by_drafting_and_resampling_is_caught(world, monkeypatch):
    # The mildest of these biases: a rejected draft takes its large noise along, but its residual is 0.
    shared = SimpleNamespace(ACCEPT=Stream.ACCEPT, RECOVER=Stream.DRAFT)
    monkeypatch.setattr(rejection, "Stream", shared)
    assert caught(world, world.simulation(SAMPLING, "bad"))


def test_resampling_from_the_target_is_caught(world, monkeypatch):
    monkeypatch.setattr(rejection, "_residual", lambda target, residuals: target)
    assert caught(world, world.simulation(SAMPLING, "good"))


def draft_densely_send_truncated(logits, rows, top_m):
    """Samples from the whole distribution, sends its renormalised top 3 (and the token, when outside)."""
    dense = draft(logits, rows, logits.shape[1])
    drafts = []
    for drafted in dense:
        pairs = list(zip(drafted.probs.token_ids, drafted.probs.probs, strict=True))
        kept = pairs[:3] + [pair for pair in pairs[3:] if pair[0] == drafted.token_id]
        total = sum(prob for _, prob in kept)
        sent = SparseDistribution(tuple(t for t, _ in kept), tuple(prob / total for _, prob in kept))
        drafts.append(DraftToken(drafted.token_id, sent))
    return drafts


def test_truncated_probs_of_a_dense_draft_are_caught(world):
    assert caught(world, world.simulation(SAMPLING, "good", draft_function=draft_densely_send_truncated))


def test_always_accepting_is_caught(world, monkeypatch):
    monkeypatch.setattr(rejection, "uniform", lambda keys, count: torch.zeros(len(keys), count).double())
    assert caught(world, world.simulation(SAMPLING, "good"))


def test_noise_reused_at_the_next_position_is_caught_by_the_joint(world, monkeypatch):
    keys = coupling.row_keys
    first = len(world.prompt)
    monkeypatch.setattr(
        coupling, "row_keys", lambda seeds, at, *rest: keys(seeds, [p - (p - first) % 8 for p in at], *rest)
    )
    simulation = world.simulation(SamplingParams(), "good")
    marginal, joint = world.p_values(simulation.run(), simulation.sampling)
    assert marginal > 1e-4
    assert joint < 1e-9
