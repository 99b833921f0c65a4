"""Tools: what a request offers, the forms in which models write calls, and the calls of an answer."""
