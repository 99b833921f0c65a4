"""What turns verdicts into the messages a client is sent."""
