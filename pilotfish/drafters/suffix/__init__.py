"""Suffix decoding (2411.04975). No model, no torch."""
