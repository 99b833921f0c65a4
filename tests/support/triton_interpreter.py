"""Triton's kernels without a GPU: in its interpreter, where Triton is installed (`TRITON_INTERPRET=1 pytest`).

torch's builds for the CPU have no Triton. That of Triton 3.6 needs NumPy below 2.3 and `-W ignore::DeprecationWarning`.
"""

import importlib.util
import os

import pytest

needs_interpreter = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs Triton and TRITON_INTERPRET=1",
)
