"""Client tokens, signatures, and their keys."""
