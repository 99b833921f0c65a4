"""Proposers: one file and one line in the registry each."""
