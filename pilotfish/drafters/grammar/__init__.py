"""The drafter `grammar`: text that a request's grammar leaves no choice about."""
