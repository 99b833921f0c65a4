"""Drafters of another vocabulary than the target's (2502.05202): their tokens become the target's, and the target's
theirs, in the draft service alone."""
