"""The orchestrator's own machine over emulated engines in virtual time: what is decided, and how long rounds take,
without this machine's noise. No asyncio, no clock.

`controller_stack` asks how controllers decide: sequences come and go, steps are disturbed, and chance says which drafts
are there. `placed_stack` asks where drafters should run: all is as the profile has it, and drafting ahead is real.
"""
