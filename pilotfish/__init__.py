"""Pilotfish: lossless speculative decoding whose drafter lives on its own machines."""

__version__ = "0.2.0"
