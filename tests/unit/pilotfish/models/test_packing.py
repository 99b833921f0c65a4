"""Packing where oneDNN cannot: a processor without AVX-512, which oneDNN is told to take this one for."""

import os
import subprocess
import sys

import pytest

PACK = """
import torch
from torch import nn
from pilotfish.models.packing import pack_linears
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 4, dtype=torch.bfloat16))
print(pack_linears(model, deterministic=True), model(torch.ones(2, 8, dtype=torch.bfloat16)).shape[1])
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="AVX belongs to x86")
def test_linears_stay_torchs_own_where_onednn_has_no_bfloat16() -> None:
    command = [sys.executable, "-c", PACK]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["0", "4"]
