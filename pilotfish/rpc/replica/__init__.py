"""The listening end of the streams: one replica in front of its engine."""
