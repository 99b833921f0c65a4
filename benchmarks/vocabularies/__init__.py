"""Parts of vocabularies.py."""
