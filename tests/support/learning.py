"""Services whose drafter learns: the ring that they write, and versions of a head for them to take up."""

import time
from pathlib import Path

import torch

from pilotfish.drafters.eagle3.checkpoint import load_eagle3, save_eagle3
from pilotfish.learning.facts import VersionFacts
from pilotfish.learning.record import LearnedText
from pilotfish.learning.ring import Ring
from pilotfish.learning.versions import Versions


def texts_in(folder: Path) -> list[LearnedText]:
    """What the ring of a learning folder holds, oldest first."""
    ring = Ring(folder / "ring", max_bytes=1 << 30, max_age_s=3600.0, key=None)
    return [text for _, text in ring.read()]


def add_version(folder: Path, head_folder: Path, *, num_target_layers: int, noise: float = 0.0) -> int:
    """A version that is the head, or with noise, relative to the size of its weights, and another draft vocabulary of
    which some tokens were not in the head's; it does not serve yet."""
    head = load_eagle3(head_folder, num_target_layers=num_target_layers)
    if noise:
        known = head.target_token_ids.tolist()
        unknown = sorted(set(range(head.config.vocab_size)).difference(known))
        new_ids = unknown[:8]
        head.set_draft_vocabulary(torch.tensor(sorted([*known[: len(known) - len(new_ids)], *new_ids])))
    generator = torch.Generator().manual_seed(3)
    for parameter in head.parameters():
        scale = noise * parameter.float().std(correction=0)
        parameter.data += (scale * torch.randn(parameter.shape, generator=generator)).to(parameter.dtype)
    new = folder / "new"
    save_eagle3(head, new)
    return Versions(folder).add(new, VersionFacts(parent=0, created_at=time.time()))
