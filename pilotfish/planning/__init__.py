"""How many replicas, how far to draft, and whether drafters earn their GPUs: answered before anything is bought."""
