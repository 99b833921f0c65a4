"""Early exits: a target's first layers draft for it, bare (LayerSkip, 2404.16710) or through a trained block (Kangaroo,
2404.18911)."""
