"""Several continuations of one text: their shape, and how they grow."""
