"""The replicas behind: which there are, how they are reached, and which one is chosen."""
