"""Drafts copied from text that is there already. Torch-free."""
