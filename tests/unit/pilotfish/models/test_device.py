"""Devices by name, where there is no GPU and where there are two."""

import pytest
import torch

from pilotfish.errors import ConfigError
from pilotfish.models.device import enter_device, require_fp8, resolve_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """So many GPUs of compute capability 8.0, as torch tells it."""
    count: int = getattr(request, "param", 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 0))
    return count


@pytest.mark.parametrize("gpus", [0], indirect=True)
@pytest.mark.usefixtures("gpus")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"engine\.device is cuda, but torch sees no CUDA device here"):
        resolve_device("cuda")
    with pytest.raises(ConfigError, match="fp8 needs a CUDA device, not cpu"):
        require_fp8(torch.device("cpu"))
    enter_device(torch.device("cpu"))


@pytest.mark.usefixtures("gpus")
def test_with_gpus_auto_and_cuda_are_the_first() -> None:
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda", 0)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="cuda:2, but torch sees devices cuda:0 to cuda:1"):
        resolve_device("cuda:2")


@pytest.mark.usefixtures("gpus")
def test_an_older_gpu_has_no_fp8() -> None:
    with pytest.raises(ConfigError, match=r"needs compute capability 8\.9 .* cuda:1 has 8\.0"):
        require_fp8(torch.device("cuda", 1))
