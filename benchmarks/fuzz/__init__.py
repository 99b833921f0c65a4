"""The surfaces of ../fuzz.py. A package: a folder without this file would give way to the module of its name."""
