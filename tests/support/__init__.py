"""What tests and benchmarks share and nobody else needs: broken networks, peers, tiny models, stand-ins for servers."""
