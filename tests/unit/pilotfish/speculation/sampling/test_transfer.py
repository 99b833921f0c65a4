"""Host values on the device: what arrives is what was sent."""

from __future__ import annotations

import torch

from pilotfish.speculation.sampling.transfer import moved, to_device

CPU = torch.device("cpu")


def test_values_keep_shape_and_type() -> None:
    assert torch.equal(to_device([[1, 2], [3, 4]], torch.int64, CPU), torch.tensor([[1, 2], [3, 4]]))
    assert to_device([0.5, 2], torch.float64, CPU).dtype is torch.float64
    assert to_device([], torch.int64, CPU).shape == (0,)
    assert to_device([1], torch.int64, torch.device("meta")).device.type == "meta"


def test_on_the_cpu_a_tensor_is_not_copied() -> None:
    tensor = torch.ones(3)
    assert moved(tensor, CPU) is tensor
