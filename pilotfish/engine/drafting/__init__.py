"""Drafters in the target's engine, and draft heads that run apart from it."""
