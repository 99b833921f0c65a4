"""Pilotfish: lossless speculative decoding whose drafter lives on its own machines."""

__version__ = "0.1.0"
