"""Training drafters for a target: data, features, losses, the loop and what comes out. Needs nothing but the target."""
