"""What quantised weights stand for."""

from torch import Tensor

from pilotfish.models.native.quantise import BLOCK_INPUTS, QuantisedWeight


def dequantise(weight: QuantisedWeight) -> Tensor:
    """The bfloat16 weights [N, K] that the kernels compute with."""
    q = weight.q.view(*weight.scale.shape, BLOCK_INPUTS).float()
    exact = weight.minimum.float()[..., None].addcmul(q, weight.scale.float()[..., None])
    return exact.bfloat16().view(weight.q.shape)
