"""Completions and chat completions: requests, answers, and what is made between them."""
