"""The orchestrator's own controllers over replicas in virtual time: what they decide, without this machine's noise.

Every sequence has a controller that learns. No asyncio, no clock.
"""
