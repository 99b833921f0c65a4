"""Models that transformers computes with its own attention and its own cache, one text a forward."""
