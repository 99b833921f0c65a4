"""A room per drafter; `pilotfish.drafter_registry` says what a room holds, and who enters it."""
