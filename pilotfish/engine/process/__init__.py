"""The engine's process: worker, socket, factories and what is done before the first request."""
