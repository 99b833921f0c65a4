"""Where models come from and where they lie on disk. Torch-free."""
