"""The plumbing around gRPC: generated stubs (v1), conversion, servers, channels, multiplexed streams."""
