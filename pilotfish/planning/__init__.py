"""How many replicas, how far to draft, and whether drafters earn their GPUs: answered before anything is bought.

decoding.py has the arithmetic of a round, checked against the engines; fleet.py simulates requests on replicas that
decode as fast as it says.
"""
