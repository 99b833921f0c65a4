"""What may be wrong with a drafter: suspicions from its answers, and experiments that find the fault."""
