"""What is told of one request: to metrics, traces and logs."""
