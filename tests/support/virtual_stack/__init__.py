"""The orchestrator's machine over emulated engines, in virtual time: the real scheduler, block pool, drafting ahead and
batching delay, and nothing of this machine's speed.
"""
