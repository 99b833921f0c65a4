"""A draft model: a small causal language model with the target's tokenizer."""
