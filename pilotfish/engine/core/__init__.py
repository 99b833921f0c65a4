"""Sequences, their cache, the scheduler and the step."""
