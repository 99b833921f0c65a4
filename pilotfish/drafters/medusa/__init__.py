"""Medusa heads (2401.10774): each guesses one token further ahead from the target's last hidden state."""
