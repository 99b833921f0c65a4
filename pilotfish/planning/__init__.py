"""How many replicas, how far to draft, and whether drafters earn their GPUs: answered before anything is bought.

Three models, from fast to faithful, each checked against the next:
    decoding.py    closed formulas: a round of drafts against plain steps, for a batch
    rounds.py      one target with its drafters, step by step: what batching and waiting make of the formulas
    fleet.py       whole fleets under load, replicas as fluids between arrivals and departures
"""
