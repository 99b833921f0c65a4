"""EAGLE-3 draft heads (2503.01840): one decoder layer on the target's hidden states. Torch modules and checkpoints."""
