"""Embedders: how texts become vectors that can be compared."""
