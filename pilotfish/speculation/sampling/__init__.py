"""What decides a token: the distribution, the noise, and the rules of acceptance."""
