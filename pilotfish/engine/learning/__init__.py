"""What an engine does for a head that learns: it keeps verified texts, and takes up new versions of the weights."""
