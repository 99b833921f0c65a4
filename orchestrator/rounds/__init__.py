"""Rounds as a machine without I/O: events with a time go in, commands and committed tokens come out."""
