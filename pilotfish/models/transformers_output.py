"""Keeping transformers quiet: its bars and warnings speak to its own users."""

from __future__ import annotations

from transformers.utils import logging


def silence_transformers() -> None:
    """Show transformers' errors only. Mutates its process-wide settings."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
