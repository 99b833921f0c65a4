"""A target over several processes, one for each rank: how a model is cut, loaded, run in step and watched.

Rank 0 is the engine worker: it schedules and samples. The others run the same forward over their part of every
layer (Megatron-LM, 1909.08053, section 3) and know nothing of sequences.
"""
