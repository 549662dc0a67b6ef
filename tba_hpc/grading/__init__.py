"""Whether a response answers its problem."""
