"""Structured output: grammars that an answer must follow. Torch-free; the matching itself is llguidance's."""
