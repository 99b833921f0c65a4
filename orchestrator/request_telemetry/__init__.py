"""What metrics, traces and logs hold of one request."""
