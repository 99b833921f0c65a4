"""Pilotfish's draft pool behind engines of others."""
