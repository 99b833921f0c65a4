"""The orchestrator's own controllers over replicas in virtual time: what they decide, without this machine's noise.

`rounds.py` beside it simulates one batch and K; here every sequence has a controller that learns. No asyncio, no clock.
"""
