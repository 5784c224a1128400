"""``usher init``: the first settings file."""
