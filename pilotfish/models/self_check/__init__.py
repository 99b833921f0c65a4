"""What computes a model right, found out by its config.json alone: a small copy of it is computed in every way."""
