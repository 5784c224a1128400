"""``usher doctor``: checks the whole installation."""
