"""From verdicts to what a client is sent."""
