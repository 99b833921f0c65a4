"""Which attention backend a GPU gets."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from pilotfish.errors import ConfigError
from pilotfish.models.attention.choice import choose_backend, flashinfer_obstacle
from pilotfish.models.attention.paged import AttentionShape

CUDA = torch.device("cuda", 0)
LAYERS = [AttentionShape(num_kv_heads=8, head_dim=128, scale=0.1)]


@pytest.mark.parametrize(
    ("is_installed", "head_dim", "dtype", "device", "obstacle"),
    [
        (True, 128, torch.bfloat16, CUDA, None),
        (False, 128, torch.bfloat16, CUDA, "not installed"),
        (True, 80, torch.bfloat16, CUDA, "heads of size 80"),
        (True, 64, torch.float32, CUDA, "compute in torch.float32"),
        (True, 64, torch.bfloat16, torch.device("cpu"), "CUDA device, not cpu"),
    ],
)
def test_what_flashinfer_needs(
    monkeypatch: pytest.MonkeyPatch,
    is_installed: bool,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    obstacle: str | None,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object() if is_installed else None)
    layers = [*LAYERS, AttentionShape(num_kv_heads=8, head_dim=head_dim, scale=0.1)]
    found = flashinfer_obstacle(layers, dtype=dtype, device=device)
    assert (found is None) if obstacle is None else (found is not None and obstacle in found)


def test_auto_falls_back_to_sdpa_and_a_demand_does_not() -> None:
    cpu = torch.device("cpu")
    for wanted in ("auto", "sdpa"):
        backend = choose_backend(wanted, LAYERS, dtype=torch.float32, device=cpu, max_context_tokens=64)
        assert backend.name == "sdpa"
    with pytest.raises(ConfigError, match=r"engine\.attention is flashinfer, but .*set it to auto or sdpa"):
        choose_backend("flashinfer", LAYERS, dtype=torch.float32, device=cpu, max_context_tokens=64)
