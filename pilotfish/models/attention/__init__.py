"""Paged attention: what a step computes, and the back ends that do."""
