"""Prompt lookup (Saxena 2023; `ngram` in vLLM). No model, no torch."""
