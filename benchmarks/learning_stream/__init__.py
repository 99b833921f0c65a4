"""What `learning.py` is made of."""
