"""The paged KV cache: its blocks, and which of them sequences hold."""
