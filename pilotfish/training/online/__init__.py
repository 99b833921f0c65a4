"""A head that learns from the traffic: candidates are trained, examined on texts that they have not seen, promoted, and
rolled back. `python -m pilotfish.training.online`."""
