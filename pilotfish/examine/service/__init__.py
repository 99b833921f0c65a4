"""A running service as an examination sees it: its answers, what it measured, and how that is shown."""
