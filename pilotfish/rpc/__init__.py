"""gRPC plumbing: generated stubs (v1), conversion, servers, channels, multiplexed streams."""
