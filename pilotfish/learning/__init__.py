"""What a drafter that learns from the traffic keeps on disk: verified texts, and the versions of its weights.

Engines write texts and read versions, the trainer reads texts and writes versions; a folder is all that they share.
Torch-free.
"""
