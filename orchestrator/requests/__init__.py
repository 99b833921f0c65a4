"""What is asked for, and whose turn it is."""
