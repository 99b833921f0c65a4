"""Training drafters on packed rows, the target's states computed anew in each step; see ../packed_training.py."""
